#include "ares/algo_loss.h"

ARES_OPTION_TABLE(ares_algorithm_options, ares_algorithm_config, ARES_ALGORITHM_OPTIONS);
ARES_OPTION_TABLE(ares_loss_options, ares_loss_config, ARES_LOSS_OPTIONS);
ARES_OPTION_TABLE(ares_vapor_options, ares_vapor_config, ARES_VAPOR_OPTIONS);
