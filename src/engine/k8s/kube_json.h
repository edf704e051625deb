/* What Kubernetes' objects have in common. Pure. Texts and values belong to the object. */
#ifndef ENGINE_K8S_KUBE_JSON_H
#define ENGINE_K8S_KUBE_JSON_H

#include <jansson.h>

/* Returns a member that is a text; "" if there is none. */
const char *kube_json_text(const json_t *object, const char *name);
/* Returns the condition of that type in an object's status; NULL: there is none. is: the status
 * that the condition must have, such as "True"; NULL: any. */
const json_t *kube_json_condition(const json_t *status, const char *type, const char *is);

#endif
