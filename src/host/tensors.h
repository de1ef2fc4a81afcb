/// \file  Writes tensors into shared segments and reads them back. A message holds the place of each tensor:
/// [dtype, [shape], offset, segment], or null for an undefined tensor. Segment 0 is the host's own.
///
/// Groups are the unit in which tensors pass. An adapter group is {site: [a, b, core, ranks, scaling]}, a tensor group
/// {name: place}.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format/safetensors.h"
#include "base/plain/json.h"
#include "host/segments.h"
#include "lora/adapter.h"

namespace evenkeel::host {

/// A group of tensors of an object: either of the two is set.
struct Group {
  std::optional<lora::AdapterState> adapters{};
  std::optional<TensorMap> tensors{};
};

/// Collects tensors for one message, and copies them into one segment. bfloat16 tensors are widened to float32, because
/// numpy lacks bfloat16. Tensors on a GPU are copied to the CPU.
class Outgoing {
 public:
  /// Returns the place that the tensor will have.
  OrderedJson add(const at::Tensor& tensor);
  OrderedJson add(const lora::AdapterState& adapters);
  OrderedJson add(const TensorMap& tensors);
  OrderedJson add(const Group& group) { return group.adapters ? add(*group.adapters) : add(*group.tensors); }
  /// Returns the bytes of all tensors together.
  size_t bytes() const { return end_; }
  /// Copies all tensors. \param segment  at least bytes() long
  void copy_to(const Segment& segment) const;

 private:
  struct Part {
    at::Tensor tensor;
    size_t offset;
  };
  std::vector<Part> parts_;
  size_t end_ = 0;
};

/// The segments that a message may point into, by id.
using SegmentsById = std::map<int64_t, std::shared_ptr<Segment>>;

/// Reads tensors at the places that a message of the host names. \throws the error kind of the view from all readers,
/// naming the place of a tensor that has an unknown type or lies outside of its segment
class Incoming {
 public:
  explicit Incoming(const SegmentsById& segments) : segments_(segments) {}
  /// Returns a view of the shared memory; undefined for null. It is valid until the next message.
  at::Tensor view(const JsonView& place) const;
  /// Returns a copy, or the copy that was returned before for the same place.
  at::Tensor copy(const JsonView& place);
  TensorMap tensors(const JsonView& group);
  /// Returns copies of the factors of a group, with the `ranks` of stacks.
  lora::AdapterState adapters(const JsonView& group);

 private:
  using Key = std::pair<int64_t, int64_t>;  // segment and offset
  const SegmentsById& segments_;
  std::map<Key, at::Tensor> copies_;
};

/// Returns the factors of one site of an adapter group, as views. \throws as Incoming
lora::LoraFactors factors_at(const Incoming& incoming, const JsonView& entry);

}  // namespace evenkeel::host
