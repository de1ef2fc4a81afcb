#include "models/expert_layout.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::models {
namespace {

/// Returns the tensor that contains a site in `layout`; empty if the layout has the model's own matrices.
std::string fused_name(const lora::Site& site, ExpertLayout layout) {
  const auto& place = site.fused;
  if (place.module.empty() || layout == ExpertLayout::kOriginal) return place.stored;
  return concat(place.module, place.parameter.substr(place.parameter.rfind('.')));
}

void add_site(const lora::Site& site, const std::string& name, FusedTensors& all) {
  auto& tensor = all[name];
  tensor.sizes = {site.fused.parts * site.out, site.in};
  if (site.experts > 0) tensor.sizes.insert(tensor.sizes.begin(), site.experts);
  for (size_t i = 0; i < site.modules.size(); ++i)
    tensor.slices.push_back({.tensor = site.modules[i] + ".weight",
                             .expert = site.experts > 0 ? static_cast<int64_t>(i) : -1,
                             .first_row = site.fused.part * site.out,
                             .rows = site.out});
}

at::Tensor slice_of(const at::Tensor& fused, const FusedSlice& slice) {
  return (slice.expert < 0 ? fused : fused.select(0, slice.expert)).narrow(0, slice.first_row, slice.rows);
}

void split_one(TensorMap& tensors, const std::string& name, const FusedTensor& fused, const std::string& origin) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return;
  const auto tensor = std::move(found->second);
  tensors.erase(found);
  EK_CHECK(tensor.sizes() == at::IntArrayRef(fused.sizes), kCheckpoint, origin, ": tensor ", name, " has shape [",
           join(tensor.sizes()), "], expected [", join(fused.sizes), "]");
  for (const auto& slice : fused.slices)
    EK_CHECK(tensors.emplace(slice.tensor, slice_of(tensor, slice)).second, kCheckpoint, origin, ": tensor ",
             slice.tensor, " is there, and once more in ", name);
}

}  // namespace

FusedTensors fused_tensors(const lora::Sites& sites, ExpertLayout layout) {
  FusedTensors all;
  for (const auto& [site_name, site] : sites) {
    const auto name = fused_name(site, layout);
    if (!name.empty() && name != site.modules.front() + ".weight") add_site(site, name, all);
  }
  return all;
}

void split_fused(TensorMap& tensors, const lora::Sites& sites, const std::string& origin) {
  for (const auto layout : {ExpertLayout::kOriginal, ExpertLayout::kFused})
    for (const auto& [name, fused] : fused_tensors(sites, layout)) split_one(tensors, name, fused, origin);
}

TensorMap fused_shapes(TensorMap shapes, const FusedTensors& fused) {
  for (const auto& [name, tensor] : fused) {
    const auto type = shapes.at(tensor.slices.front().tensor).scalar_type();
    for (const auto& slice : tensor.slices) shapes.erase(slice.tensor);
    shapes.emplace(name, at::empty(tensor.sizes, at::device(at::kMeta).dtype(type)));
  }
  return shapes;
}

TensorMaker fused_maker(const FusedTensors& fused, const TensorMaker& make) {
  return [&fused, &make](const std::string& name) {
    const auto found = fused.find(name);
    if (found == fused.end()) return make(name);
    at::Tensor whole;
    for (const auto& slice : found->second.slices) {
      const auto matrix = make(slice.tensor);
      if (!whole.defined()) whole = at::empty(found->second.sizes, matrix.options());
      slice_of(whole, slice).copy_(matrix);
    }
    return whole;
  };
}

}  // namespace evenkeel::models
