/// \file  Reads the result of a hook, and checks it: names, shapes, types, and that all numbers are finite.
#pragma once

#include "host/objects.h"

namespace evenkeel::host {

/// Reads the results of a call of a hook. Borrows all arguments of the constructor.
class Results {
 public:
  /// \param objects   objects of the program that the hook may return
  /// \param segments  shared memory with the returned tensors
  /// \param sites     sites of the model, which results are checked against; a length of 0 is not checked
  Results(const Objects& objects, const SegmentsById& segments, const lora::Sites& sites)
      : objects_(objects), segments_(segments), sites_(sites) {}

  /// Read an object. A group that the host has not loaded is taken from the object that the result was made from.
  /// \throws kShape, kNumeric naming the tensor
  lora::Payload payload(const JsonView& value) const;
  /// \param common  of the old state. A state that the hook has made itself has it, with its own `fixed` if it has any
  methods::ServerState state(const JsonView& value, const methods::Common& common = {}) const;
  methods::LocalSetup setup(const JsonView& value) const;
  /// \param own  the round of the call, whose other values the result has
  methods::RoundView round(const JsonView& value, const methods::RoundView& own) const;
  methods::ClientProfile client(const JsonView& value, const methods::ClientProfile& own) const;
  /// Reads routing counts. \param own  those of the call, with the layers and shapes that are allowed
  nn::RoutingByLayer counts(const JsonView& value, const nn::RoutingByLayer& own) const;
  TensorMap tensors(const JsonView& group) const;
  lora::AdapterState adapters(const JsonView& group) const;
  at::Tensor tensor(const JsonView& place) const;
  /// Returns the loss that a hook gives as a value and its gradients, as a scalar with these gradients; undefined for
  /// null. \throws kShape naming a gradient of another shape than its tensor
  at::Tensor loss(const JsonView& value, const methods::StepView& step) const;

  /// Writes the groups that the host has loaded of a step back into the step's gradients and parameters.
  /// \throws kShape; kNumeric for numbers that are not finite, except in a tensor that had such numbers before
  void write_back(const JsonView& value, const methods::StepView& step) const;
  /// Replaces the client's memory if the host has loaded it.
  void take_memory(const JsonView& view_value, const methods::ClientView& view) const;

 private:
  void check(const std::string& name, const lora::LoraFactors& factors, const JsonView& entry) const;

  const Objects& objects_;
  const SegmentsById& segments_;
  const lora::Sites& sites_;
};

/// Returns the sites of a state. A length that no factor shows is 0.
lora::Sites sites_of(const methods::ServerState& state);
/// Returns the sites of a payload, in the same way.
lora::Sites sites_of(const lora::Payload& payload);

}  // namespace evenkeel::host
