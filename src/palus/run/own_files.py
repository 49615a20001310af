"""Which files of a folder palus wrote itself: a list on disk, so that nothing else is ever removed."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from palus.errors import StorageError

LIST = ".palus-files"
"""Its name in the folder; hidden, so that it is not published with a run."""


class OwnFiles:
    """The list of a folder, one path below `root` per line. It grows before a file is written, so a kill loses none."""

    def __init__(self, root: Path) -> None:
        self.root, self._list = root, root / LIST
        self._names = set(_read(self._list))

    def __contains__(self, path: Path) -> bool:
        return self._name(path) in self._names

    def add(self, path: Path) -> Path:
        """Enter a file that is about to be written; returns its path. Raises StorageError."""
        name = self._name(path)
        if name not in self._names:
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                with self._list.open("a", encoding="utf-8") as file:
                    file.write(f"{name}\n")
            except OSError as error:
                raise StorageError(
                    f"{self._list}: could not be written ({error.strerror or error}); "
                    "free space or choose another folder"
                ) from error
            self._names.add(name)
        return path

    def remove_all(self) -> None:
        """Delete every file of the list, the folders that this empties, and the list."""
        files = [self.root / name for name in self._names]
        for path in [*files, self._list]:
            path.unlink(missing_ok=True)
        folders = {folder for path in files for folder in path.parents if self.root in folder.parents}
        for folder in sorted(folders, key=lambda f: len(f.parts), reverse=True):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        self._names = set()

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _read(file: Path) -> list[str]:
    """The lines that name something below the folder: a copied list cannot point out of it."""
    try:
        lines = file.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    names = [PurePosixPath(line) for line in lines if line]
    return [str(name) for name in names if not name.is_absolute() and ".." not in name.parts]
