/* What a thread computes that comes to no door. */
enum { LOOPS = 2000 };

/* One step of a program. A call is what a thread can count on its way. */
__attribute__((noinline)) static unsigned long step(unsigned long x)
{
    for (int i = 0; i < LOOPS; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}
