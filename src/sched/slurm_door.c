/* "NAME NUMBER NUMBER …"; or "over" in front: see slurm_door.h. */
#include "sched/slurm_door.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool slurm_door_read(const char *path, uint32_t number, uint32_t *ranks)
{
	FILE *file = fopen(path, "re");
	char name[512] = "";
	unsigned rank;
	bool open = false;

	*ranks = 0;
	if (!file) {
		return false;
	}
	if (fscanf(file, "%511s", name) == 1 && strcmp(name, "over") != 0) {
		while (fscanf(file, "%u", &rank) == 1) {
			open = true;
			*ranks += rank / SLURM_LAUNCHER_RANKS == number;
		}
	}
	fclose(file);
	return open;
}

void slurm_door_remove(const char *path)
{
	char imports[PATH_MAX + 16];

	snprintf(imports, sizeof(imports), "%s.imports", path);
	unlink(imports);
	unlink(path);
}
