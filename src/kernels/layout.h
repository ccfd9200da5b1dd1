/* Half-precision numbers, rounded to nearest even (layout.c). */
#ifndef ARES_KERNELS_LAYOUT_H
#define ARES_KERNELS_LAYOUT_H

#include <stdint.h>

float kernels_bf16_to_f32(uint16_t x);
uint16_t kernels_f32_to_bf16(float x);
float kernels_f16_to_f32(uint16_t x);
uint16_t kernels_f32_to_f16(float x);
#endif
