/* JPEG by libjpeg-turbo. Errors return by longjmp; warnings are ignored. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <jerror.h>
#include "base/mem.h"
#include "data/picture_int.h"

struct jpeg {
    struct picture p;
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr error;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    bool made, cut, short_data;                          /* cut: read past the end; short_data: a scan lacks data */
    int left, columns;                                   /* the decoded part of each row */
    uint8_t *row;                                        /* for rows to discard */
    char why[JMSG_LENGTH_MAX];
};

static const char TOO_EARLY[] = "the file ends too early";

static struct jpeg *of(j_common_ptr d) { return d->client_data; }

static void fail(struct jpeg *j, const char *why)
{
    snprintf(j->why, sizeof j->why, "%s", why);
    longjmp(j->failed, 1);
}

static void error_exit(j_common_ptr d)
{
    struct jpeg *j = of(d);
    if (d->err->msg_code == JERR_OUT_OF_MEMORY) mem_got(NULL);
    if (j->cut) fail(j, TOO_EARLY);
    d->err->format_message(d, j->why);
    longjmp(j->failed, 1);
}

/* level -1: a warning; others: trace messages */
static void emit_message(j_common_ptr d, int level)
{
    if (level < 0 && d->err->msg_code == JWRN_HIT_MARKER) of(d)->short_data = true;
}

static void output_message(j_common_ptr d) { (void)d; }

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void source_nothing(j_decompress_ptr d) { (void)d; }

/* Past the end, supplies the end marker: a truncated file may lack only that. */
static boolean source_fill(j_decompress_ptr d)
{
    static const JOCTET end[] = {0xff, JPEG_EOI};
    of((j_common_ptr)d)->cut = true;
    d->src->next_input_byte = end;
    d->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

static void source_skip(j_decompress_ptr d, long n)
{
    size_t skip = n > 0 ? (size_t)n : 0, left = d->src->bytes_in_buffer;
    if (skip >= left) source_fill(d);
    else {
        d->src->next_input_byte += skip;
        d->src->bytes_in_buffer -= skip;
    }
}

/* A progressive file of some kilobytes may have scans that take hours. */
static void progress_check(j_common_ptr d)
{
    if (((j_decompress_ptr)d)->input_scan_number > PICTURE_SCANS) fail(of(d), "too many scans");
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool begins(jpeg_saved_marker_ptr m, const char *with, size_t n)
{
    return m->data_length >= n && !memcmp(m->data, with, n);
}

/* A long EXIF continues in further segments; of several XMP packets the last one counts. */
static int orientation_find(const struct jpeg_decompress_struct *d)
{
    static const char exif_name[] = "Exif\0", xmp_name[] = "http://ns.adobe.com/xap/1.0/";   /* with the string's NUL */
    struct text exif = {0};
    jpeg_saved_marker_ptr xmp = NULL;
    for (jpeg_saved_marker_ptr m = d->marker_list; m; m = m->next) {
        if (begins(m, exif_name, sizeof exif_name))
            text_add_bytes(&exif, m->data + sizeof exif_name, m->data_length - sizeof exif_name);
        if (begins(m, xmp_name, sizeof xmp_name)) xmp = m;
    }
    int found = picture_exif((const uint8_t *)exif.s, exif.n);
    if (!found && xmp) found = picture_xmp(xmp->data + sizeof xmp_name, xmp->data_length - sizeof xmp_name);
    text_free(&exif);
    return found ? found : 1;
}

static void header_read(struct jpeg *j)
{
    struct jpeg_decompress_struct *d = &j->d;
    jpeg_save_markers(d, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(d, TRUE);
    j->p.width = (int)d->image_width;                    /* at most 16 bits */
    j->p.height = (int)d->image_height;
    j->p.orientation = orientation_find(d);
    bool ink = d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK;
    d->out_color_space = ink ? JCS_CMYK : JCS_EXT_RGBX;
    d->dct_method = JDCT_ISLOW;
    d->do_fancy_upsampling = TRUE;
    d->progress = &j->progress;
}

/* Error if the file ends before its picture. A file that is not progressive may lack only the end marker. */
static int cut_check(const struct jpeg *j, struct err *e)
{
    bool several = jpeg_has_multiple_scans((j_decompress_ptr)&j->d);
    return j->cut && (j->short_data || several) ? picture_damaged(&j->p, TOO_EARLY, e) : 0;
}

static int jpeg_open(struct picture *p, struct err *e)
{
    struct jpeg *j = (struct jpeg *)p;
    j->d.err = jpeg_std_error(&j->error);
    j->error.error_exit = error_exit;
    j->error.emit_message = emit_message;
    j->error.output_message = output_message;
    j->d.client_data = j;
    if (setjmp(j->failed)) return picture_damaged(p, j->why, e);
    jpeg_create_decompress(&j->d);
    j->made = true;
    j->d.mem->max_memory_to_use = PICTURE_MEMORY;
    j->source = (struct jpeg_source_mgr){p->bytes, p->n, source_nothing, source_fill, source_skip,
                                         jpeg_resync_to_restart, source_nothing};
    j->progress.progress_monitor = progress_check;
    j->d.src = &j->source;
    header_read(j);
    return 0;
}

/* With several scans libjpeg stores all coefficients, otherwise some rows. */
static size_t jpeg_memory(const struct picture *p)
{
    const struct jpeg *j = (const struct jpeg *)p;
    size_t row = (size_t)j->d.image_width * (size_t)j->d.num_components * sizeof(JCOEF);
    return row * (jpeg_has_multiple_scans((j_decompress_ptr)&j->d) ? j->d.image_height : 32);
}

static void jpeg_shrink(struct picture *p, int by)
{
    struct jpeg *j = (struct jpeg *)p;
    j->d.scale_num = 1;
    j->d.scale_denom = (unsigned)by;
    p->width = (p->width + by - 1) / by;
    p->height = (p->height + by - 1) / by;
}

/* Decodes the part's columns and as many more on the left and right as a block has, because upsampling reads
 * neighbours. With several scans it decodes all columns: libjpeg smooths across blocks there if some are left out. */
static void columns_choose(struct jpeg *j)
{
    struct jpeg_decompress_struct *d = &j->d;
    bool several = jpeg_has_multiple_scans(d);
    int more = d->max_h_samp_factor * d->min_DCT_scaled_size, width = (int)d->output_width;
    int left = j->p.part.left - more, end = j->p.part.left + j->p.part.columns + more;
    JDIMENSION first = (JDIMENSION)(left > 0 ? left : 0), n = (JDIMENSION)(end < width ? end : width) - first;
    if (several) first = 0, n = d->output_width;
    if (n < d->output_width) jpeg_crop_scanline(d, &first, &n);
    j->left = (int)first;
    j->columns = (int)n;
}

static int jpeg_begin(struct picture *p, struct err *e)
{
    struct jpeg *j = (struct jpeg *)p;
    if (setjmp(j->failed)) return picture_damaged(p, j->why, e);
    jpeg_start_decompress(&j->d);
    if ((int)j->d.output_width != p->width || (int)j->d.output_height != p->height)
        return err_set(e, E_INTERNAL, "%s: libjpeg makes %ux%u pixels of it", p->path, j->d.output_width,
                       j->d.output_height);
    columns_choose(j);
    return cut_check(j, e);
}

/* a * b / 255, rounded */
static uint8_t part(unsigned a, unsigned b)
{
    unsigned x = a * b + 128;
    return (uint8_t)((x + (x >> 8)) >> 8);
}

/* Adobe's files store 255 minus the ink. */
static void ink_to_light(uint8_t *row, int n)
{
    for (int i = 0; i < n; i++, row += PICTURE_BYTES)
        for (int k = 0; k < 3; k++) row[k] = (uint8_t)(row[3] - part(255u - row[k], row[3]));
}

static int jpeg_row(struct picture *p, uint8_t *out, struct err *e)
{
    struct jpeg *j = (struct jpeg *)p;
    out += j->left * PICTURE_BYTES;
    JSAMPROW row = out;
    if (setjmp(j->failed)) return picture_damaged(p, j->why, e);
    if (jpeg_read_scanlines(&j->d, &row, 1) != 1) return picture_damaged(p, "a row is missing", e);
    if (j->d.out_color_space == JCS_CMYK) ink_to_light(out, j->columns);
    return cut_check(j, e);
}

/* Reads the very last row, because libjpeg does not check rows that are skipped at the end. */
static int jpeg_skip(struct picture *p, int rows, struct err *e)
{
    struct jpeg *j = (struct jpeg *)p;
    bool end = p->rows == p->height;
    if (end && !j->row) j->row = mem_alloc((size_t)p->width * PICTURE_BYTES);
    if (setjmp(j->failed)) return picture_damaged(p, j->why, e);
    if (rows > end) jpeg_skip_scanlines(&j->d, (JDIMENSION)(rows - end));
    return end ? jpeg_row(p, j->row, e) : cut_check(j, e);
}

static void jpeg_close(struct picture *p)
{
    struct jpeg *j = (struct jpeg *)p;
    if (j->made) jpeg_destroy_decompress(&j->d);
    free(j->row);
}

const struct picture_kind picture_jpeg = {
    .name = "JPEG", .magic = "\xff\xd8\xff", .magic_n = 3, .bytes = sizeof(struct jpeg),
    .open = jpeg_open, .memory = jpeg_memory, .shrink = jpeg_shrink, .begin = jpeg_begin, .row = jpeg_row,
    .skip = jpeg_skip, .close = jpeg_close,
};
