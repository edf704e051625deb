/*
 * What a profile of the vendor's files offers, and the keys that it leads to. A role comes before
 * the keys that stand beside it, which may be those it is asked for with. Any thread, as far as io
 * allows.
 */
#ifndef STORE_OBJECT_CRED_PROFILE_H
#define STORE_OBJECT_CRED_PROFILE_H

#include "store/object/cred_ini.h"
#include "store/object/cred_sources.h"

#define CRED_PATH_MAX  4096u /* bytes of a path of these files, terminator included */
#define CRED_CHAIN_MAX 5u    /* profiles that lead to each other by source_profile */

/* The files that have profiles; "": there is no home directory for it. */
struct cred_files {
	char credentials[CRED_PATH_MAX]; /* AWS_SHARED_CREDENTIALS_FILE, ~/.aws/credentials */
	char config[CRED_PATH_MAX];      /* AWS_CONFIG_FILE, ~/.aws/config */
};

/* Finds out where the files are. PAWL_ELIMIT: a path is too long. */
int cred_files_find(const struct cred_io *io, struct cred_files *files, struct pawl_err *err);
/*
 * Reads what both files say about a profile; credentials wins over config, and its keys are not
 * mixed with those of config. A file may be missing; see found. PAWL_EINVAL, PAWL_ELIMIT: a file is
 * malformed; PAWL_EIO: it cannot be read; PAWL_ENOMEM. err names the file. On success the caller
 * clears profile; on error it is empty.
 */
int cred_profile_load(const struct cred_io *io, const struct cred_files *files, const char *name,
	struct cred_profile *profile, struct pawl_err *err);
/* Returns whether a profile offers credentials, usable or not. */
bool cred_profile_has_source(const struct cred_profile *profile);
/* Gets the key that a profile leads to; key NULL: only checks the profile, and those that it leads
 * to. PAWL_EINVAL: it cannot be used, and err says why; else as the sources. name is the
 * profile's. */
int cred_profile_key(const struct cred_ask *ask, const struct cred_files *files,
	const struct cred_profile *profile, const char *name, struct cred_key *key,
	struct pawl_err *err);

#endif
