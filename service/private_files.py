"""Files of the service that nobody else on the machine may read: its data directory, database, logs, checkpoints."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from service.settings import Settings

PRIVATE_UMASK = 0o077
"""Files are created with mode 0600 at most, and directories with 0700, by this process and by those that it starts."""

logger = logging.getLogger(__name__)


def keep_files_private(settings: Settings) -> None:
    """Makes this process, and all that it starts, create files for their user alone. What was there before and can be
    read by others is named in a warning, and left as it is: someone may share it on purpose."""
    os.umask(PRIVATE_UMASK)
    checkpoints = settings.checkpoint_place
    for path in (
        settings.data_dir,
        *settings.database_files,
        *([checkpoints] if isinstance(checkpoints, Path) else []),
    ):
        if (warning := why_not_private(path)) is not None:
            logger.warning(warning)


def why_not_private(path: Path) -> str | None:
    """A sentence on who else may do what with a file or directory, and how to end that; None: nobody, or there is
    none."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
    if not mode & PRIVATE_UMASK:
        return None
    return f"{path} is open to other users of this machine (mode {mode:04o}): chmod go-rwx {path} closes it to them"
