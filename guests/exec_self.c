// Shows: a program with threads execs itself, generation after generation, keeping pid, open files and their offsets.
// Breaks if: the standby is not gone before the new image starts, or the exec is taken for the primary's death.
// kit: args 0
// kit: no-kill between two images nobody follows, and an image made after a failover has the kernel's pid
#include "guest.h"

enum { GENERATIONS = 6 };

static void *run(void *arg)
{
    (void)arg;
    for (;;)
        guest_pause_us(200);
    return NULL;
}

int main(int argc, char **argv)
{
    char number[16], pid[16];
    int generation, fd;

    CHECK(argc >= 2);
    generation = (int)strtol(argv[1], NULL, 10);
    if (generation == 0) {
        guest_scratch();
        struct guest_name name = guest_path("notes");
        fd = open(name.s, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0 && unlink(name.s) == 0);
        guest_scratch_end();
    } else {
        CHECK(argc == 4);
        fd = (int)strtol(argv[2], NULL, 10);
        CHECK(strtol(argv[3], NULL, 10) == getpid());
    }
    CHECK(lseek(fd, 0, SEEK_CUR) == generation);
    guest_write_all(fd, "x", 1);
    for (int i = 0; i < 3; i++)
        guest_start(run, NULL);
    for (int i = 0; i < 20; i++)
        guest_pause_us(400);
    printf("generation %d\n", generation);
    if (generation + 1 == GENERATIONS)
        exit(guest_ok());
    CHECK(fflush(stdout) == 0);
    char descriptor[16];
    snprintf(number, sizeof number, "%d", generation + 1);
    snprintf(descriptor, sizeof descriptor, "%d", fd);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    execl("/proc/self/exe", argv[0], number, descriptor, pid, NULL);
    return 1; /* execl came back */
}
