/* EXIF: whatever it is, the orientation is one of eight, or none. Another one than the first needs a whole entry. A
 * list of entries that begins within the header, at byte 6, has it at bytes 8 to 19. */
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
