// Prints what a started program finds: arguments, environment, descriptors, signals, session. One fact a line.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static void status_line(const char *key) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, key, strlen(key)) == 0) {
            char value[64] = "";
            sscanf(line + strlen(key), ": %63s", value);
            printf("%s=%s\n", key, value);
        }
    fclose(status);
}

int main(int argc, char **argv) {
    char text[4096];
    struct stat file;
    // Descriptors first: reading them must not meet our own.
    DIR *open_files = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(open_files));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(open_files)) printf("fd=%s\n", entry->d_name);
    closedir(open_files);
    for (int fd = 0; fd < 3; fd++) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, text, sizeof text - 1);
        text[length < 0 ? 0 : length] = 0;
        printf("fd%d=%s\n", fd, text);
        fstat(fd, &file);
        printf("fd%d regular=%d append=%d\n", fd, S_ISREG(file.st_mode), (fcntl(fd, F_GETFL) & O_APPEND) != 0);
    }
    printf("argc=%d\nargv0=%s\ncwd=%s\n", argc, argv[0], getcwd(text, sizeof text));
    for (char **entry = environ; *entry; entry++) printf("env=%s\n", *entry);
    printf("session leader=%d\ngroup leader=%d\n", getsid(0) == getpid(), getpgrp() == getpid());
    printf("terminal=%d\n", open("/dev/tty", O_RDWR) >= 0);
    status_line("SigBlk");
    status_line("SigIgn");
    status_line("SigCgt");
    status_line("Umask");
    return 0;
}
