/* Macros for tables of fields: see frame_layout.h. A struct of name x has its table in x_fields. */
#ifndef IPC_FRAME_MACROS_H
#define IPC_FRAME_MACROS_H

#include "ipc/frame_layout.h"

#include <stddef.h>

#define FIELD(frame, kind, name)                                                                   \
	{                                                                                          \
		FRAME_##kind, offsetof(struct frame, name), sizeof(((struct frame *)NULL)->name),  \
			0, 0, NULL                                                                 \
	}
/* count: the field with the number of entries in the array items, each laid out as layout. */
#define LIST(frame, count, array, layout)                                                          \
	{                                                                                          \
		FRAME_LIST, offsetof(struct frame, count), sizeof(uint32_t),                       \
			offsetof(struct frame, array),                                             \
			sizeof(((struct frame *)NULL)->array) /                                    \
			sizeof(((struct frame *)NULL)->array[0]),                                  \
			&layout                                                                    \
	}
/* A struct within the struct, laid out as layout. */
#define STRUCT(frame, name, layout)                                                                \
	{                                                                                          \
		FRAME_STRUCT, offsetof(struct frame, name), sizeof(((struct frame *)NULL)->name),  \
			0, 0, &layout                                                              \
	}
/* A field of type struct frame_rows, whose rows are laid out as layout. */
#define ROWS(frame, name, layout)                                                                  \
	{                                                                                          \
		FRAME_ROWS, offsetof(struct frame, name), sizeof(struct frame_rows), 0, 0, &layout \
	}
#define LAYOUT(frame)                                                                              \
	{                                                                                          \
		frame##_fields, sizeof(frame##_fields) / sizeof(frame##_fields[0]),                \
			sizeof(struct frame)                                                       \
	}

#endif
