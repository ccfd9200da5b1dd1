#include "cli.h"
int ares_cli_doctor(int argc, char **argv)
{
    (void)argc, (void)argv;
    const cli_command c = {
        .name = "doctor", .usage = "", .about = "", .example = "", .words = CLI_OVERRIDES
    };
    bool helped;
    return cli_read(&c, &argc, argv, &helped);
}
