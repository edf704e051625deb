/* Units of time. For pure modules too, which do not include clock.h. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#define NS_PER_MS 1000000LL
#define NS_PER_S  1000000000LL

#endif
