/* EXIF: for any input the orientation is one of eight, or none. An orientation other than the first needs a whole
 * entry. If a list of entries begins within the header, at byte 6, that entry is at bytes 8 to 19. */
#include "refusal.h"
#include "data/picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int turn = picture_exif(data, size);
    must(turn >= 0 && turn <= 8);
    must(turn <= 1 || size >= 20);
    turn = picture_xmp(data, size);
    must(turn >= 0 && turn <= 8);
    return 0;
}
