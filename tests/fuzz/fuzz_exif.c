/* EXIF: whatever it is, the orientation is one of eight. */
#include "memory_file.h"
#include "data/picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int turn = picture_exif(data, size);
    must(turn >= 1 && turn <= 8);
    must(turn == 1 || size >= 22);
    return 0;
}
