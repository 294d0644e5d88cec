/*
 * understudy.h: what a program may tell Understudy about the order of its threads.
 *
 * Nothing has to be linked. Each function looks up the runtime once, and does nothing where there is none, so a program that
 * uses this header runs without Understudy as if the calls were not there. See docs/book/sdk.md.
 */
#ifndef UNDERSTUDY_H
#define UNDERSTUDY_H

#include <dlfcn.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the runtime exports as `understudy_sdk`. New functions come at the end. */
struct us_sdk {
	uint64_t bytes; /* of this structure, in the runtime that is loaded */
	void (*det_start)(void);
	void (*det_end)(void);
	void (*det_tick)(uint64_t ticks);
	void (*critical_begin)(void);
	void (*critical_end)(void);
};

static inline const struct us_sdk *us_sdk_(void)
{
	static const struct us_sdk *found;
	static int looked;

	if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
		/* RTLD_DEFAULT, which needs _GNU_SOURCE. Threads that come together find the same. */
		found = (const struct us_sdk *)dlsym((void *)0, "understudy_sdk");
		__atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
	}
	return found;
}

#define US_SDK_CALL_(function, arguments)                                                    \
	do {                                                                                  \
		const struct us_sdk *sdk_ = us_sdk_();                                         \
		if (sdk_ && sdk_->bytes >= __builtin_offsetof(struct us_sdk, function) + 8)    \
			sdk_->function arguments;                                              \
	} while (0)

/* From here to us_det_end this thread has the turn: what it does comes at one place of the computed order, whole. */
static inline void us_det_start(void)
{
	US_SDK_CALL_(det_start, ());
}

/* The end of that. */
static inline void us_det_end(void)
{
	US_SDK_CALL_(det_end, ());
}

/* This thread has computed for a while without passing a door: others wait less for it. The count must follow from the input. */
static inline void us_det_tick(uint64_t ticks)
{
	US_SDK_CALL_(det_tick, (ticks));
}

/* From here to us_critical_end this thread is in no order, and nobody waits for it. What it does must not depend on others. Where it comes
 * back among them time decides: a thread that has a part in the outcome gives up that the outcome is the same one. */
static inline void us_critical_begin(void)
{
	US_SDK_CALL_(critical_begin, ());
}

/* The end of that. */
static inline void us_critical_end(void)
{
	US_SDK_CALL_(critical_end, ());
}

#ifdef __cplusplus
}
#endif

#endif
