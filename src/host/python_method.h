/// \file  A method whose overridden hooks run in a host process. For the other hooks, the base method's run here.
#pragma once

#include <memory>
#include <string>

#include "host/host.h"

namespace evenkeel::host {

class Call;

/// A method that is a class in Python. Threads: any number may call it; the host runs one hook at a time. Hooks of
/// different clients run in no fixed order; the hooks of one client run in the order of a round.
class PythonMethod : public methods::DescribedMethod {
 public:
  /// \param options  the values of its keys, as a JSON object
  /// \throws kConfig when the class refuses a value
  PythonMethod(std::shared_ptr<const methods::MethodDescription> description, std::shared_ptr<Host> host,
               std::string options);

  methods::LocalSetup prepare(const lora::Payload& download, const methods::ClientView& view) const override;
  at::Tensor extra_loss(const methods::StepView& step) const override;
  at::Tensor penalty(const methods::StepView& step) const override;
  void edit_gradients(const methods::StepView& step) const override;
  void edit_parameters(const methods::StepView& step) const override;
  lora::Payload upload(const lora::Payload& download, const methods::LocalSetup& setup,
                       const nn::RoutingByLayer& counts, const methods::ClientView& view) const override;
  void check_upload(const lora::Payload& upload, const methods::ClientProfile& client) const override;
  methods::ServerState initialize(const methods::ServerView& server) const override;
  lora::Payload broadcast(const methods::ServerState& state, const methods::ClientProfile& client,
                          const methods::RoundView& round) const override;
  methods::ServerState aggregate(const methods::ServerView& server, const methods::ServerState& state,
                                 const methods::RoundView& round, const methods::Uploads& uploads) const override;
  TensorMap diagnostics(const methods::ServerState& state) const override;
  lora::AdapterState pseudo_gradients(const methods::ServerState& state) const override;

 private:
  Call call(const char* hook, const lora::Sites& sites, const std::string& about = {}) const;
  methods::LocalSetup prepared_by_host(const lora::Payload& download, const methods::ClientView& view) const;
  at::Tensor loss(const char* hook, const methods::StepView& step,
                  at::Tensor (methods::FederatedMethod::*of_base)(const methods::StepView&) const) const;
  void edit(const char* hook, const methods::StepView& step,
            void (methods::FederatedMethod::*of_base)(const methods::StepView&) const) const;

  std::shared_ptr<Host> host_;
  std::string options_;
};

}  // namespace evenkeel::host
