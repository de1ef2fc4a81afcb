/// \file  Reads what a hook returned, and checks it: names, shapes, types, and that all numbers are finite.
#pragma once

#include "host/objects.h"

namespace evenkeel::host {

/// What the results of a hook are read from and checked against.
class Results {
 public:
  /// \param sites  of the model; a length of 0 is not checked \param objects  those that the hook may return
  Results(const Objects& objects, const SegmentsById& segments, const lora::Sites& sites)
      : objects_(objects), segments_(segments), sites_(sites) {}

  /// Read an object. A group that the host has not loaded is that of the object that it was made from.
  /// \throws kShape, kNumeric naming the tensor
  lora::Payload payload(const JsonView& value) const;
  methods::ServerState state(const JsonView& value) const;
  methods::LocalSetup setup(const JsonView& value) const;
  methods::RoundView round(const JsonView& value) const;
  TensorMap tensors(const JsonView& group) const;
  lora::AdapterState adapters(const JsonView& group) const;
  at::Tensor tensor(const JsonView& place) const;
  /// Returns the loss that a hook gives as a value and its gradients, as a scalar with these gradients; undefined for
  /// null. \throws kShape naming a gradient of another shape than its tensor
  at::Tensor loss(const JsonView& value, const methods::StepView& step) const;

  /// Writes what the host has loaded of a step back into its gradients and parameters.
  /// \throws kShape, kNumeric as above; numbers that were not finite before are left alone
  void write_back(const JsonView& value, const methods::StepView& step) const;
  /// Copies the gradients and parameters of a step into the shared memory of the host's arrays.
  void refresh(const JsonView& value, const methods::StepView& step) const;
  /// Replaces the client's memory if the host has loaded it.
  void take_memory(const JsonView& view_value, const methods::ClientView& view) const;

 private:
  void check(const std::string& name, const lora::LoraFactors& factors, const JsonView& entry) const;

  const Objects& objects_;
  const SegmentsById& segments_;
  const lora::Sites& sites_;
};

/// Returns the sites of a state, as far as its factors show their lengths.
lora::Sites sites_of(const methods::ServerState& state);

}  // namespace evenkeel::host
