// The compiled library of a device, its kernel plan, its weights and its states (docs/bundle.md, "Target tvm").
#pragma once
#include "bundle.h"

typedef struct {
  uint64_t request, row, step, position, length, branch;
} Row;

void open_kernels(void);
// Computes a sub-module for a step. Inputs in its order, NULL where they are step inputs; outputs are for free().
bool compute(const char* submodule, const Row* rows, Dims dims, void* const* inputs, void** outputs);
void reset_states(uint64_t slot);
bool rewrites_states(void);  // some state is that of one step alone: no earlier one is left of it
