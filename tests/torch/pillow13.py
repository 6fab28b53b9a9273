"""Import it where pictures are scaled: older versions of Pillow then scale in the order of Pillow 13, columns first
where the height shrinks by more than twice what the width does."""
import PIL
from PIL import Image

_resize = Image.Image.resize


def _ordered(im, size, *more, **named):
    if im.height - size[1] > max(0, 2 * (im.width - size[0])):
        im = _resize(im, (im.width, size[1]), *more, **named)
    return _resize(im, size, *more, **named)


if int(PIL.__version__.split(".")[0]) < 13:
    Image.Image.resize = _ordered
