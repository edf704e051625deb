/* The numbers of the zip format (PKWARE APPNOTE 6.3), for zip.c and zip_read.c alone. */
#ifndef CKPT_FORMAT_ZIP_BYTES_H
#define CKPT_FORMAT_ZIP_BYTES_H

#define ZIP_SIG_LOCAL      0x04034b50u
#define ZIP_SIG_DESCRIPTOR 0x08074b50u
#define ZIP_SIG_DIRECTORY  0x02014b50u
#define ZIP_SIG_END        0x06054b50u
#define ZIP_SIG_END64      0x06064b50u
#define ZIP_SIG_LOCATOR    0x07064b50u

/* bytes of each record without its variable parts */
#define ZIP_LOCAL_BYTES        30u
#define ZIP_DESCRIPTOR_BYTES   16u
#define ZIP_DESCRIPTOR64_BYTES 24u
#define ZIP_DIRECTORY_BYTES    46u
#define ZIP_END_BYTES          22u
#define ZIP_END64_BYTES        56u
#define ZIP_LOCATOR_BYTES      20u
#define ZIP_EXTRA_HEADER_BYTES 4u /* id and length of an extra field */

#define ZIP_EXTRA_ZIP64 0x0001u
#define ZIP_EXTRA_PAD   0x4246u /* "FB": how torch names its padding */

#define ZIP_FLAG_ENCRYPTED  0x0001u
#define ZIP_FLAG_DESCRIPTOR 0x0008u
#define ZIP_FLAG_UTF8       0x0800u
#define ZIP_METHOD_STORED   0u
#define ZIP_VERSION_PLAIN   20u
#define ZIP_VERSION_ZIP64   45u
#define ZIP_DATE_1980_01_01 0x0021u /* the format's first day: files do not depend on the clock */

/* a field full of ones means that the number is in the zip64 record */
#define ZIP_U16_FULL 0xffffu
#define ZIP_U32_FULL 0xffffffffu

#endif
