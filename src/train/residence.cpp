#include "train/residence.h"

#include <ATen/ATen.h>

#include <utility>

namespace evenkeel::train {
namespace {

TensorMap all_copied(const TensorMap& tensors, StorageCopies& copies) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) result.emplace(name, copies(tensor));
  return result;
}

}  // namespace

lora::AdapterState copied(const lora::AdapterState& adapters, StorageCopies& copies) {
  lora::AdapterState result;
  for (const auto& [site, factors] : adapters)
    result[site] = {.a = copies(factors.a),
                    .b = copies(factors.b),
                    .core = copies(factors.core),
                    .scaling = factors.scaling,
                    .ranks = factors.ranks};
  return result;
}

methods::LocalSetup copied(const methods::LocalSetup& setup, StorageCopies& copies) {
  methods::LocalSetup result = setup;
  result.adapters = copied(setup.adapters, copies);
  result.router.modulation = all_copied(setup.router.modulation, copies);
  result.router.output_scale = copies(setup.router.output_scale);
  result.extra_trainables = all_copied(setup.extra_trainables, copies);
  result.notes = all_copied(setup.notes, copies);
  return result;
}

lora::Payload extras_copied(const lora::Payload& payload, StorageCopies& copies) {
  lora::Payload result = payload;
  for (auto& [name, tensor] : result.extras)
    if (tensor.dim() > 0) tensor = copies(tensor);
  return result;
}

Residence make_residence(const methods::Common& common, c10::Device device, StorageCopies copies) {
  Residence residence{.device = device, .common = {}, .copies = std::move(copies)};
  residence.common = {.fixed = copied(common.fixed, residence.copies),
                      .base_change = copied(common.base_change, residence.copies)};
  return residence;
}

Residence make_residence(const methods::Common& common, c10::Device device, KeptMemory& memory) {
  auto residence = make_residence(common, device, memory.copies(StorageCopies::to(device), device));
  residence.copies = residence.copies.with([device](const at::Tensor& bytes_N) {
    if (bytes_N.device() == device) return bytes_N;
    const auto own_N = at::empty_like(bytes_N, bytes_N.options().device(device));
    copy_bytes(bytes_N, own_N);
    return own_N;
  });
  return residence;
}

}  // namespace evenkeel::train
