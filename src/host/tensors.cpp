#include "host/tensors.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>

#include "base/plain/error.h"

namespace evenkeel::host {
namespace {

constexpr size_t kAlignment = 64;

struct TypeName {
  std::string_view name;  // of numpy's dtype.str without the byte order
  at::ScalarType type;
};
constexpr std::array kTypes{TypeName{"f4", at::kFloat}, TypeName{"f8", at::kDouble}, TypeName{"f2", at::kHalf},
                            TypeName{"i8", at::kLong},  TypeName{"i4", at::kInt},    TypeName{"i2", at::kShort},
                            TypeName{"i1", at::kChar},  TypeName{"u1", at::kByte},   TypeName{"b1", at::kBool}};

std::string_view name_of(at::ScalarType type) {
  for (const auto& known : kTypes)
    if (known.type == type) return known.name;
  fail(kInternal, "a tensor of type ", at::toString(type), " cannot pass to a method in Python");
}

at::ScalarType type_in(const JsonView& view) {
  for (const auto& known : kTypes)
    if (known.name == view.string()) return known.type;
  view.refuse(" is of type ", view.string(), ", allowed: float32, float64, float16, int8 to int64, uint8, bool");
}

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

at::Tensor factor_at(const Incoming& incoming, const JsonView& entry, size_t index) {
  return entry.at(index).json().is_null() ? at::Tensor() : incoming.view(entry.at(index));
}

}  // namespace

OrderedJson Outgoing::add(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  auto plain = tensor.detach();
  if (plain.scalar_type() == at::kBFloat16) plain = plain.to(at::kFloat);
  OrderedJson place = {name_of(plain.scalar_type()), plain.sizes().vec(), end_};
  const size_t bytes = plain.nbytes();
  parts_.push_back({std::move(plain), end_});
  end_ = aligned(end_ + bytes);
  return place;
}

OrderedJson Outgoing::add(const lora::AdapterState& adapters) {
  OrderedJson group = OrderedJson::object();
  for (const auto& [site, factors] : adapters)
    group[site] = {add(factors.a), add(factors.b), add(factors.core), add(factors.ranks), factors.scaling};
  return group;
}

OrderedJson Outgoing::add(const TensorMap& tensors) {
  OrderedJson group = OrderedJson::object();
  for (const auto& [name, tensor] : tensors) group[name] = add(tensor);
  return group;
}

void Outgoing::copy_to(const Segment& segment) const {
  for (const auto& [tensor, offset] : parts_) {
    auto* place = segment.data() + offset;
    if (tensor.is_cpu() && tensor.is_contiguous())
      std::memcpy(place, tensor.const_data_ptr(), tensor.nbytes());
    else
      at::from_blob(place, tensor.sizes(), at::TensorOptions(tensor.scalar_type())).copy_(tensor);
  }
}

at::Tensor Incoming::view(const JsonView& place) const {
  if (place.json().is_null()) return {};
  const auto type = type_in(place.at(size_t{0}));
  const auto shape = place.at(1).integers(0);
  const auto offset = place.at(2).integer(0), id = place.at(3).integer(0);
  const auto found = segments_.find(id);
  place.require(found != segments_.end(), " is in shared memory of an earlier call: copy what a hook keeps");
  double bytes = static_cast<double>(c10::elementSize(type));
  for (const int64_t size : shape) bytes *= static_cast<double>(size);
  place.require(static_cast<double>(offset) + bytes <= static_cast<double>(found->second->size()),
                " lies outside of its shared memory");
  return at::from_blob(found->second->data() + offset, shape, at::TensorOptions(type));
}

at::Tensor Incoming::copy(const JsonView& place) {
  if (place.json().is_null()) return {};
  auto& known = copies_[{place.at(3).integer(), place.at(2).integer()}];
  const auto seen = view(place);
  if (!known.defined() || known.sizes() != seen.sizes() || known.scalar_type() != seen.scalar_type())
    known = seen.clone();
  return known;
}

TensorMap Incoming::tensors(const JsonView& group) {
  TensorMap tensors;
  for (const auto& member : group.members()) tensors[member.key()] = copy(member);
  return tensors;
}

lora::AdapterState Incoming::adapters(const JsonView& group) {
  lora::AdapterState adapters;
  for (const auto& member : group.members()) {
    auto factors = factors_at(*this, member);
    for (auto* factor : {&factors.a, &factors.b, &factors.core, &factors.ranks})
      if (factor->defined()) *factor = factor->clone();
    adapters[member.key()] = std::move(factors);
  }
  return adapters;
}

lora::LoraFactors factors_at(const Incoming& incoming, const JsonView& entry) {
  return {.a = factor_at(incoming, entry, 0),
          .b = factor_at(incoming, entry, 1),
          .core = factor_at(incoming, entry, 2),
          .scaling = entry.at(4).number(),
          .ranks = factor_at(incoming, entry, 3)};
}

}  // namespace evenkeel::host
