// Shows: a read into memory that is not there, from pipes, sockets and files: EFAULT, and what was to be read is still there.
// Breaks if: the runtime takes it out of the pipe for its log, and cannot give it to anybody then.
#include "guest.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { ROUNDS = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long bytes_read;

static void *work(void *arg)
{
    char *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *places[] = { NULL, hole, (char *)-4096 };
    int own[2], pair[2], file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    char sent[8], got[8], first[4];

    CHECK(hole != MAP_FAILED && file >= 0 && pipe2(own, O_CLOEXEC) == 0);
    ZERO(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    for (int r = 0; r < ROUNDS; r++) {
        char *bad = places[r % 3];
        struct iovec vector = { bad, 8 };

        snprintf(sent, sizeof sent, "%03d%04ld", r, guest_num(arg));
        RETURNS(write(own[1], sent, 8), 8);
        RETURNS(write(pair[1], sent, 8), 8);
        FAILS(syscall(SYS_read, own[0], bad, 8), EFAULT);
        FAILS(syscall(SYS_readv, own[0], &vector, 1), EFAULT);
        RETURNS(read(own[0], got, 8), 8);
        CHECK(memcmp(sent, got, 8) == 0);
        FAILS(syscall(SYS_read, pair[0], bad, 8), EFAULT);
        FAILS(syscall(SYS_recvfrom, pair[0], bad, 8, 0, NULL, NULL), EFAULT);
        FAILS(syscall(SYS_recvfrom, pair[0], bad, 8, MSG_PEEK, NULL, NULL), EFAULT);
        RETURNS(recv(pair[0], got, 8, 0), 8);
        CHECK(memcmp(sent, got, 8) == 0);
        FAILS(syscall(SYS_read, file, bad, 4), EFAULT);
        RETURNS(lseek(file, 0, SEEK_CUR), 0);
        FAILS(syscall(SYS_pread64, file, bad, 4, 0), EFAULT);
        RETURNS(pread(file, first, 4, 0), 4);
        CHECK(memcmp(first, "\177ELF", 4) == 0);
        ZERO(pthread_mutex_lock(&lock));
        bytes_read += 16;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(1000);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[2];

    for (int i = 0; i < 2; i++)
        t[i] = guest_start(work, guest_ptr(i));
    for (int i = 0; i < 2; i++)
        guest_join(t[i]);
    printf("read %ld\n", bytes_read);
    return guest_ok();
}
