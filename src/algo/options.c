#include "ares/algo.h"

ARES_OPTION_TABLE(ares_algorithm_options, ares_algorithm_config, ARES_ALGORITHM_OPTIONS);
ARES_OPTION_TABLE(ares_loss_options, ares_loss_config, ARES_LOSS_OPTIONS);
