"""What a model may be trained for, by name."""

from collections.abc import Callable

from asepr.errors import TrainingError
from asepr.trainer_plugin.link_prediction import LinkTask
from asepr.trainer_plugin.node_classification import MultiLabel, SingleLabel
from asepr.trainer_plugin.task import Setting, Task

TASKS: dict[str, Callable[[Setting], Task]] = {"node": SingleLabel, "multilabel": MultiLabel, "link": LinkTask}


def make_task(name: str, setting: Setting) -> Task:
    """Return the task of that name on a shard; all ranks together.

    Raises
    ------
    TrainingError
        There is no such task, or the shard lacks what it needs.
    """
    check_task(name)
    return TASKS[name](setting)


def check_task(name: str) -> None:
    """Check that there is a task of that name.

    Raises
    ------
    TrainingError
        There is none.
    """
    if name not in TASKS:
        raise TrainingError(f"task must be one of {', '.join(TASKS)}, got '{name}'; choose one of these")
