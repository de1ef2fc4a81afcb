// Fuzzes a safetensors file: length, header, and the bounds of every tensor.
#include <ATen/ATen.h>

#include "base/format/safetensors.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const auto read = load_safetensors(fuzz::write("model.safetensors", input));
  for (const auto& [name, tensor] : read.tensors)
    if (tensor.numel() > 0) tensor.reshape({-1}).select(0, tensor.numel() - 1).clone();
}
