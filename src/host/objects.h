/// \file  Numbers the objects of the program that a host may refer to while a hook runs: arguments of the hook, and
/// results of the base method. A host asks for their tensors group by group, when it needs them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>

#include "host/tensors.h"
#include "methods/method.h"

namespace evenkeel::host {

using SharedPayload = std::shared_ptr<const lora::Payload>;
using SharedState = std::shared_ptr<const methods::ServerState>;
using SharedSetup = std::shared_ptr<const methods::LocalSetup>;

/// An object that a host knows. Pointers borrow arguments of the hook.
using Object = std::variant<const methods::ServerView*, const methods::Uploads*, const methods::ClientUpdate*,
                            const methods::ClientView*, const methods::StepView*, const nn::RoutingByLayer*,
                            SharedPayload, SharedState, SharedSetup, at::Tensor>;

/// The objects of one call of a hook, by number. No number is used twice in a process.
class Objects {
 public:
  int64_t add(Object object);  ///< returns the object's number
  /// Returns the object with a number. \throws the error kind of `number` when there is none, or it is no T
  template <typename T>
  const T& at(const JsonView& number) const {
    const auto found = objects_.find(number.integer());
    number.require(found != objects_.end(), " is an object of an earlier call: a hook keeps no arguments");
    const auto* object = std::get_if<T>(&found->second);
    number.require(object != nullptr, " is an object of another kind");
    return *object;
  }
  /// Returns a group of an object's tensors. Gradients and parameters are the step's own tensors, no copies.
  /// \throws as at(); also when the object has no such group
  Group group(const JsonView& number, const JsonView& name) const;

 private:
  std::map<int64_t, Object> objects_;
};

/// Returns an object for an argument that outlives the call.
template <typename T>
std::shared_ptr<const T> borrowed(const T& object) {
  return {std::shared_ptr<void>(), &object};
}

/// Returns the trained parameters of a step, or their gradients. Factors that are not trained are undefined.
lora::AdapterState trained_factors(const methods::StepView& step, bool gradients);
/// Returns the further trained tensors of a step, or their gradients.
TensorMap trained_extras(const methods::StepView& step, bool gradients);

}  // namespace evenkeel::host
