/* See kube_json.h. */
#include "engine/k8s/kube_json.h"

#include <string.h>

const char *kube_json_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text != NULL ? text : "";
}

const json_t *kube_json_condition(const json_t *status, const char *type, const char *is)
{
	const json_t *condition;
	size_t i;

	json_array_foreach(json_object_get(status, "conditions"), i, condition)
	{
		if (strcmp(kube_json_text(condition, "type"), type) == 0 &&
			(is == NULL || strcmp(kube_json_text(condition, "status"), is) == 0)) {
			return condition;
		}
	}
	return NULL;
}
