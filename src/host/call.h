/// \file  One call of a hook in a host: sends the arguments, answers what the hook asks for, and reads the result.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/arguments.h"
#include "host/host.h"
#include "host/results.h"

namespace evenkeel::host {

/// Calls the base method's hook with the arguments that the host gives, for `super().hook()`.
/// \return the answer to the host
using CallBase = std::function<OrderedJson(const JsonView& arguments)>;

/// A call of a hook. It holds the host's mutex, so calls of other threads wait. For one thread, except that any thread
/// may ask the host for parts of a sum while the program computes an answer to the host.
class Call {
 public:
  /// \param hook   name of the class's function
  /// \param sites  sites of the model, borrowed; results are checked against them
  /// \param about  subject of the call in messages, such as "client 3"; may be empty
  Call(Host& host, const methods::MethodDescription& description, const std::string& options, std::string hook,
       const lora::Sites& sites, const std::string& about);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  Objects& objects() { return objects_; }
  Results results() const { return {objects_, connection_.segments(), sites_}; }
  /// Calls the hook and returns its result, which is valid as long as this object.
  /// \throws the error of the hook; an error of the program that the hook did not handle; as Connection::receive()
  JsonView run(OrderedJson arguments, const CallBase& base);

 private:
  /// \param base  empty: the host computes a part of a sum, and may ask for what parts need alone
  void answer(const JsonView& question, const CallBase& base);
  OrderedJson answer_to(const std::string& what, const JsonView& question, const CallBase& base, Outgoing& tensors);
  at::Tensor mean(const JsonView& question);
  at::Tensor sum(const JsonView& question);
  at::Tensor gradient_sum(const JsonView& question) const;
  methods::Uploads::WeightsOf part_of_host();
  /// Sends a message and answers what the host asks until its reply comes.
  Json converse(OrderedJson message, const CallBase& base);
  void take_error(const JsonView& message);

  const std::unique_lock<std::mutex> lock_;
  Connection& connection_;
  const int64_t object_;
  const lora::Sites& sites_;
  const std::string hook_, who_;
  Objects objects_;
  std::mutex parts_;
  std::exception_ptr refused_;
  int64_t refusals_ = 0;
  Json result_;
  std::vector<int64_t> kept_;  // segments of the result
};

}  // namespace evenkeel::host
