/* litter.h: bytes that each copy has for itself, as it has on its stack below what is in use.
 *
 * Include guest.h first. The processor's own random numbers pass no door and are in no log. A processor
 * without them shows nothing.
 */
#ifndef UNDERSTUDY_LITTER_H
#define UNDERSTUDY_LITTER_H

#include <immintrin.h>

__attribute__((target("rdrnd"))) static inline void litter(void *to, size_t bytes)
{
    unsigned long long drawn = 7;

    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        if (__builtin_cpu_supports("rdrnd"))
            while (_rdrand64_step(&drawn) == 0)
                ;
        memcpy((char *)to + at, &drawn, 8);
    }
}

#endif
