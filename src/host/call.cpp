#include "host/call.h"

#include <ATen/ATen.h>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/system/interrupt.h"

namespace evenkeel::host {
namespace {

at::Tensor lora::LoraFactors::*factor_in(const JsonView& name) {
  for (const auto& factor : lora::kFactors)
    if (factor.name == name.string()) return factor.tensor;
  name.refuse(" is \"", name.string(), "\", allowed: a, b, core");
}

/// Reads a weight for each of several uploads.
std::vector<double> weights_in(const JsonView& list, size_t uploads) {
  std::vector<double> numbers;
  for (const auto& item : list.items()) numbers.push_back(item.number());
  list.require(numbers.size() == uploads, " has ", numbers.size(), " weights, expected one for each of ", uploads,
               " uploads");
  return numbers;
}

/// Returns whether a part of a sum may ask for it. Any other answer would wait for the sum, which waits for the part.
bool is_for_parts(std::string_view what) { return what == "group" || what == "sites"; }

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    const std::string_view text = known.what();
    return std::string(text.substr(0, text.find('\n')));
  } catch (...) {
    return "an error of an unknown kind";
  }
}

}  // namespace

Call::Call(Host& host, const methods::MethodDescription& description, const std::string& options, std::string hook,
           const lora::Sites& sites, const std::string& about)
    : lock_(host.mutex()),
      connection_(host.connection()),
      object_(host.object(options)),
      sites_(sites),
      hook_(std::move(hook)),
      who_(concat("hook ", hook_, about.empty() ? "" : " of ", about)) {
  connection_.set_wait(who_, description.seconds);
}

Call::~Call() { connection_.release(kept_); }

JsonView Call::run(OrderedJson arguments, const CallBase& base) {
  result_ = converse({{"call", hook_}, {"object", object_}, {"arguments", std::move(arguments)}}, base);
  const JsonView message(result_, who_, kShape);
  if (message.has("kept")) kept_ = message.at("kept").integers();
  take_error(message);
  return message.at("result");
}

void Call::take_error(const JsonView& message) {
  const auto error = message.find("error");
  if (!error) return;
  if (error->integer_or("refusal", -1) == refusals_ && refused_) std::rethrow_exception(refused_);
  throw_if_failed(message, who_);
}

Json Call::converse(OrderedJson message, const CallBase& base) {
  connection_.send(std::move(message));
  for (;;) {
    auto reply = connection_.receive();
    const JsonView view(reply, who_, kShape);
    if (!view.has("ask")) return reply;
    answer(view, base);
  }
}

void Call::answer(const JsonView& question, const CallBase& base) {
  Outgoing tensors;
  OrderedJson reply;
  try {
    reply = {{"answer", answer_to(question.at("ask").string(), question, base, tensors)}};
  } catch (const Interrupted&) {
    throw;
  } catch (...) {
    refused_ = std::current_exception();
    tensors = {};
    reply = {{"refused", text_of(refused_)}, {"refusal", ++refusals_}};
  }
  connection_.send(std::move(reply), tensors);
}

OrderedJson Call::answer_to(const std::string& what, const JsonView& question, const CallBase& base,
                            Outgoing& tensors) {
  question.at("ask").require(base || is_for_parts(what), " is \"", what,
                             "\", which a part of a sum cannot ask for: ask before the sum");
  if (what == "group") return tensors.add(objects_.group(question.at("of"), question.at("name")));
  if (what == "super") return base(question.at("arguments"));
  if (what == "mean") return tensors.add(mean(question));
  if (what == "sum") return tensors.add(sum(question));
  if (what == "gradient_sum") return tensors.add(gradient_sum(question));
  if (what == "sites") return to_host(sites_);
  question.refuse(" is \"", what, "\", which is no question");
}

methods::Uploads::WeightsOf Call::part_of_host() {
  return [this](const methods::ClientUpdate& update, double weight) {
    const std::scoped_lock lock(parts_);
    const OrderedJson upload{
        {"of", objects_.add(&update)}, {"client", to_host(update.client)}, {"steps", update.steps}};
    const Json reply = converse({{"part", upload}, {"weight", weight}}, {});
    const JsonView view(reply, who_, kShape);
    EK_CHECK(!view.has("error"), kData, who_, ": a part of a sum failed");
    return results().tensor(view.at("result"));
  };
}

at::Tensor Call::mean(const JsonView& question) {
  const auto& uploads = *objects_.at<const methods::Uploads*>(question.at("of"));
  const auto weights = weights_in(question.at("weights"), uploads.size());
  if (const auto extra = question.find("extra")) return uploads.mean(extra->string(), weights);
  const auto factor = factor_in(question.at("factor"));
  const auto& site = question.at("site").string();
  if (question.flag_or("by_expert", false)) return uploads.mean(site, factor, weights, part_of_host());
  return uploads.mean(site, factor, weights);
}

at::Tensor Call::sum(const JsonView& question) {
  const auto& uploads = *objects_.at<const methods::Uploads*>(question.at("of"));
  return uploads.sum(weights_in(question.at("weights"), uploads.size()), part_of_host());
}

at::Tensor Call::gradient_sum(const JsonView& question) const {
  const auto& server = *objects_.at<const methods::ServerView*>(question.at("of"));
  EK_CHECK(server.gradient_sum, kConfig, who_, ": gradient_sum is for initialize() alone");
  const auto& site = question.at("site").string();
  question.at("site").require(server.sites.contains(site), " is no adapted weight of the model");
  return server.gradient_sum(
      site, {.rows = question.at("rows").integer(1),
             .from = question.at("pooled").flag() ? methods::SampleFrom::kPooled : methods::SampleFrom::kClients});
}

}  // namespace evenkeel::host
