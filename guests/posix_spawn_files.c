// Shows: posix_spawn with file actions and attributes; the child shares memory until it execs (vfork's way).
// Breaks if: the short-lived child, which runs on the parent's memory, writes the parent's ring.
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

enum { ROUNDS = 20 };

extern char **environ;

int main(void)
{
    uint64_t digest = 0;

    for (int r = 0; r < ROUNDS; r++) {
        posix_spawn_file_actions_t actions;
        char number[16], back[32] = { 0 };
        const char *const argv[] = { "sh", "-c", "echo spawned $1", "sh", number, NULL };
        int ends[2], status;
        pid_t pid;
        snprintf(number, sizeof number, "%d", r);
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        ZERO(posix_spawn_file_actions_init(&actions));
        ZERO(posix_spawn_file_actions_adddup2(&actions, ends[1], 1));
        ZERO(posix_spawnp(&pid, "sh", &actions, NULL, (char *const *)argv, environ));
        ZERO(posix_spawn_file_actions_destroy(&actions));
        CHECK(close(ends[1]) == 0);
        for (ssize_t n, at = 0; (n = read(ends[0], back + at, sizeof back - (size_t)at)) > 0; at += n)
            ;
        CHECK(close(ends[0]) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(strncmp(back, "spawned ", 8) == 0 && strtol(back + 8, NULL, 10) == r);
        digest = guest_mix(digest ^ guest_digest(back, strlen(back)));
        ZERO(posix_spawnp(&pid, "sh", NULL, NULL, (char *const[]){ (char *)"sh", (char *)"-c", (char *)"exit 3", NULL }, environ));
        CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
    }
    pid_t none;
    CHECK(posix_spawnp(&none, "no-such-program-here", NULL, NULL, (char *const[]){ (char *)"x", NULL }, environ) == ENOENT);
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
