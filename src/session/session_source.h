/* A checkpoint being read, shared by session_restore.c (whole partitions), session_reshard.c (parts
 * of them) and session_peers.c (bytes of other hosts). A comment that begins with "memory:",
 * "peers:" or "store:" names the only source for which the field counts; "peers" is memory, too. */
#ifndef SESSION_SESSION_SOURCE_H
#define SESSION_SESSION_SOURCE_H

#include "ckpt/read.h"
#include "session/session.h"

/* How much of a partition is verified. */
enum source_state {
	SOURCE_UNREAD,
	SOURCE_LISTED, /* the pickle, and the sizes of the storages */
	SOURCE_PLACED, /* and where the storages lie */
	SOURCE_READ,   /* the whole partition */
};

/* One partition being read. */
struct source_part {
	struct pawl_restore_part info; /* as shown to the caller */
	enum source_state state;       /* how much of the following is verified */
	struct zip_plan zip;           /* layout; where storages lie only once placed */
	bool *have; /* for each chunk: verified for pawl_restore_read_needed; NULL: none is */
	struct part_image *image;             /* store: the file in memory; NULL while unread */
	const struct manifest_part *manifest; /* store: the entry in the manifest */
	uint32_t owner; /* memory: the rank whose record describes it (0 if shared) */
	uint32_t index; /* memory: index in that record */
};

/* One rank's share of a checkpoint in memory. */
struct source_rank {
	struct record record; /* what the rank staged */
	uint8_t *arena;       /* mapping of the rank's arena; peers: a part of the restore's map */
	uint64_t size_bytes;  /* size of the arena */
	/* peers: owned; for each of the record's partitions, owned: whether each piece is here.
	 * NULL: no piece is. */
	bool **here;
};

/* A row of some partition's tensor table. */
struct source_tensor {
	const char *name;    /* name, in the table; not terminated */
	uint32_t name_bytes; /* bytes of name */
	uint32_t part;       /* index of the partition */
	size_t off;          /* offset of the row in the table */
};

struct pawl_restore {
	struct pawl_ckpt *ckpt; /* NULL for tools */
	struct pawl_restore_info info;
	struct source_part *parts; /* info.parts_n entries */
	struct source_rank *ranks; /* memory: info.world entries */
	bool peers;                /* memory: that of other hosts; bytes come when asked for */
	uint8_t *map;              /* peers: the memory in which all arenas lie */
	uint64_t map_bytes;        /* peers: size of map */
	struct tags_root *root;    /* store: the root */
	struct reader *reader;     /* store: reads partitions */
	struct manifest manifest;  /* store: the tag's manifest */
	char tag[CKPT_TAG_MAX];    /* name of the checkpoint */
	bool vote_pending;         /* the other ranks wait for this one's vote */
	/* Rows of all tables, by name; NULL until first needed. */
	struct source_tensor *tensors;
	size_t tensors_n; /* number of entries in tensors */
};

/* Reads and verifies a partition as far as state. PAWL_EINVAL: there is no such partition. */
int source_advance(struct pawl_restore *restore, uint32_t index, enum source_state state,
	struct pawl_err *err);
/* Verifies what the ranks hold in memory of bytes lo to before hi of the file, and fetches it
 * before if other hosts have it. Precedes all use of bytes in memory. */
int source_check_memory(struct pawl_restore *restore, const struct source_part *part, uint64_t lo,
	uint64_t hi, struct pawl_err *err);

/* ---- session_peers.c ---- */
/* Takes the offer of what other hosts have in memory, and fills restore->ranks. PAWL_ECORRUPT: the
 * offer is malformed. What it has taken until an error is freed by source_drop_peers. */
int source_take_peers(struct pawl_restore *restore, const struct link_reply *reply,
	struct pawl_err *err);
/* Fetches the pieces of a rank's share that have a byte from lo to before hi of the file, unless
 * they are here. Returns what the agent answers; PAWL_EPEER: it is gone. */
int source_fetch(struct pawl_restore *restore, uint32_t rank, const struct record_part *share,
	uint64_t lo, uint64_t hi, struct pawl_err *err);
/* Frees what source_take_peers and source_fetch made, but for ranks and their records. */
void source_drop_peers(struct pawl_restore *restore);

#endif
