"""The picture book: each screen fills a 2880 x 1800 picture in its theme."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QColor, QImage

from app import theme
from app.shots.book import SCREENS
from app.shots.main import main
from app.shots.run import picture

pytestmark = [pytest.mark.usefixtures("themed"), pytest.mark.filterwarnings("ignore:path is deprecated")]


@pytest.mark.parametrize("name", SCREENS)
def test_screen_is_drawn(name: str) -> None:
    image = picture(SCREENS[name])
    assert (image.width(), image.height()) == (1400 if name.endswith("narrow") else 2880, 1800)
    assert image.pixelColor(2, 1400) == QColor(theme.DARK.panel)
    assert len({image.pixel(x, y) for x in range(200, image.width() - 100, 7) for y in range(100, 1500, 11)}) > 12


def test_pictures_of_one_screen_are_the_same_twice() -> None:
    assert picture(SCREENS["chat_errors"]) == picture(SCREENS["chat_errors"])


def test_command_writes_both_themes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "first_run"]) == 0
    paths = capsys.readouterr().out.split()
    assert [Path(path).name for path in paths] == ["first_run_dark.png", "first_run_light.png"]
    assert not any(QImage(path).isNull() for path in paths)


def test_unknown_screen_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), "nowhere"])
    assert "no such screen" in capsys.readouterr().err
