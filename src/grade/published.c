/* How published reward functions combine accuracy, format and length. */
#include "published.h"

double published_math(double accuracy, double format, double format_weight)
{
    return (1 - format_weight) * accuracy + format_weight * format;
}
double published_dapo(double accuracy, double overlong, double overlong_penalty_factor)
{
    return accuracy + overlong * overlong_penalty_factor;
}
double published_normalized(double accuracy)
{
    return (accuracy + 1) / 2;
}
