/* Where ranks join: see run_door.h. */
#include "agent/run_door.h"

#include "agent/run_group.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOOR_MAX    4096u        /* bytes of a file that says where ranks join */
#define IMPORTS_MAX (256u << 10) /* bytes of names of modules; more are not believed */

bool run_door_is_open(const char *door, const struct run_group *group)
{
	FILE *file = door[0] != '\0' ? fopen(door, "re") : NULL;
	char text[DOOR_MAX] = "";
	bool found = false;

	if (file == NULL) {
		return false;
	}
	for (char *at = fgets(text, sizeof(text), file); !found && at != NULL;) {
		at = strchr(at, ' ');
		found = at != NULL && run_group_has(group, (uint32_t)strtoul(at + 1, &at, 10));
	}
	fclose(file);
	return found;
}

void run_door_close(const char *door)
{
	static const char over[] = "over\n";
	FILE *file = door[0] != '\0' ? fopen(door, "we") : NULL;

	if (file != NULL) {
		(void)fwrite(over, 1, sizeof(over) - 1, file);
		fclose(file);
	}
}

static void name_imports(const char *door, char *path, size_t cap_bytes)
{
	snprintf(path, cap_bytes, "%s" RUN_DOOR_IMPORTS, door);
}

char *run_door_imports(const char *door)
{
	char path[PATH_MAX + sizeof(RUN_DOOR_IMPORTS)];
	char *text;
	size_t len = 0;
	FILE *file;

	name_imports(door, path, sizeof(path));
	file = door[0] != '\0' ? fopen(path, "re") : NULL;
	if (file == NULL) {
		return NULL;
	}
	text = malloc(IMPORTS_MAX + 1);
	if (text != NULL) {
		len = fread(text, 1, IMPORTS_MAX + 1, file);
	}
	fclose(file);
	if (len == 0 || len > IMPORTS_MAX) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	return text;
}

void run_door_remove(const char *door)
{
	char path[PATH_MAX + sizeof(RUN_DOOR_IMPORTS)];

	if (door[0] != '\0') {
		name_imports(door, path, sizeof(path));
		unlink(path);
		unlink(door);
	}
}
