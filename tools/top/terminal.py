"""The terminal of rondo-top: its keys, and its other screen, so that what stood there comes back."""

import os
import re
import select
import shutil
import sys
import termios
import time
import tty

_KEYS = {b"\033[A": "up", b"\033[B": "down", b"\033[5~": "page up", b"\033[6~": "page down", b"\033[H": "home", b"\033[1~": "home",
         b"\033[F": "end", b"\033[4~": "end"}
_KEY = re.compile(rb"\033[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)


def names(read):
    """The names of the keys whose bytes were read."""
    found = (key.replace(b"\033O", b"\033[") for key in _KEY.findall(read))
    return [_KEYS.get(key, key.decode("latin1")) for key in found]


class Terminal:
    """While it is entered. Keys are read if the standard input is a terminal."""

    def __init__(self, screen):
        self._screen = screen
        self._keys = sys.stdin.fileno() if sys.stdin.isatty() else None

    def __enter__(self):
        if self._keys is not None:
            self._before = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        self._write("\033[?1049h\033[?25l\033[2J")
        return self

    def __exit__(self, *_):
        self._write("\033[?25h\033[?1049l")
        if self._keys is not None:
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def show(self, document=None):
        """This document, or the last one once more."""
        self._screen.document = document or self._screen.document
        if self._screen.document:
            size = shutil.get_terminal_size()
            lines = self._screen.lines(*size)
            # Each line is cleared first: behind a full one the cursor stands on its last character.
            self._write("\033[H\033[K" + "\r\n\033[K".join(lines) + ("\r\n\033[J" if len(lines) < size.lines else ""))

    def pause(self, seconds):
        """So long, or until a key wants no more: True."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._keys is None:
                time.sleep(left)
            elif select.select([self._keys], [], [], left)[0]:
                read = os.read(self._keys, 256)
                if not read or any([self._screen.key(key, shutil.get_terminal_size().lines) for key in names(read)]):
                    return True
                self.show()
        return False

    def _write(self, text):
        sys.stdout.write(text)
        sys.stdout.flush()
