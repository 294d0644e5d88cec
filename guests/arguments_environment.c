// Shows: arguments arrive as given, the environment holds no name twice.
// Breaks if: the runtime eats an argument, or sets a variable that a copy made later does not have.
// kit: args first --second -- 4th
#include "guest.h"

extern char **environ;

int main(int argc, char **argv)
{
    CHECK(argc == 5);
    CHECK(argv[argc] == NULL);
    for (int i = 1; i < argc; i++)
        printf("argument %d: %s\n", i, argv[i]);
    CHECK(getenv("PATH") != NULL);
    for (int round = 0; round < 60; round++) {
        for (char **a = environ; *a; a++) {
            size_t name = strcspn(*a, "=") + 1;
            for (char **b = a + 1; *b; b++)
                CHECK(strncmp(*a, *b, name) != 0);
        }
        CHECK(strcmp(argv[1], "first") == 0 && strcmp(argv[4], "4th") == 0);
        guest_pause_us(400);
    }
    return guest_ok();
}
