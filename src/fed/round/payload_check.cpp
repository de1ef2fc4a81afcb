#include "fed/round/payload_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/plain/text.h"
#include "fed/exchange/reported_numbers.h"
#include "fed/round/update_size.h"
#include "models/cost.h"
#include "privacy/limits.h"

namespace evenkeel::fed {
namespace {

/// Checks dtype and shape. \param type  nothing: any floating point
void require_shape(const at::Tensor& tensor, std::optional<at::ScalarType> type, at::IntArrayRef shape,
                   const std::string& name, const std::string& source) {
  const bool is_of_type = type ? tensor.scalar_type() == *type : tensor.is_floating_point();
  EK_CHECK(is_of_type && tensor.sizes() == shape, kData, source, ": ", name, " is ",
           c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "], expected ",
           type ? c10::toString(*type) : "numbers of shape", " [", join(shape), "]");
}

void require_finite(const at::Tensor& tensor, const std::string& name, const std::string& source) {
  const bool finite = !tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>();
  EK_CHECK(finite, kData, source, ": ", name, " holds a value that is not finite");
}

/// Checks that products of an upload's values stay finite in float32.
void require_bounded(const at::Tensor& tensor, const std::string& name, const std::string& source) {
  require_finite(tensor, name, source);
  if (!tensor.is_floating_point() || tensor.numel() == 0) return;
  const auto most = tensor.abs().max().item<double>();
  EK_CHECK(most <= kMostValue, kData, source, ": ", name, " holds a value of magnitude ", most, ", allowed: up to ",
           kMostValue);
}

void check_factors(const lora::LoraFactors& factors, const lora::Site& site, int64_t most, const std::string& name,
                   const std::string& source) {
  EK_CHECK(std::isfinite(factors.scaling), kData, source, ": the scaling of ", name, " is not finite");
  for (const auto& factor : lora::kFactors) {
    const auto& tensor = factors.*factor.tensor;
    if (!tensor.defined()) continue;
    const int64_t rank = factors.rank();
    EK_CHECK(rank >= 1 && rank <= most, kData, source, ": ", name, " is of rank ", rank, ", allowed: 1 to ", most);
    const auto full = concat(name, "/", factor.name);
    require_shape(tensor, std::nullopt, lora::shape_of(site, factor, rank), full, source);
    require_finite(tensor, full, source);
  }
}

void check_state(const lora::AdapterState& state, const lora::Sites& sites, int64_t most_rank,
                 const std::string& source) {
  for (const auto& [name, factors] : state) {
    const auto site = sites.find(name);
    EK_CHECK(site != sites.end(), kData, source, ": ", shown(name), " is none of the model's adapted weights");
    check_factors(factors, site->second, most_rank, name, source);
  }
}

int64_t all_values(const lora::Payload& payload) {
  int64_t values = lora::values_in(payload.adapters) + lora::values_in(payload.base_delta);
  for (const auto& [name, tensor] : payload.extras) values += tensor.numel();
  return values;
}

constexpr int64_t kVectors = int64_t{1} << 20;  // values of tensors that are no factors

/// Returns an upper bound of the rank of a round's change of the base: the stacked uploads of all clients, and as much
/// for the terms that are subtracted from them.
int64_t changed_rank(const Server& server) {
  const auto& plans = server.config.plans();
  return 2 * std::accumulate(plans.begin(), plans.end(), int64_t{0},
                             [](int64_t sum, const ClientPlan& plan) { return sum + plan.rank; });
}

/// Returns an upper bound of the rank of the change of the base that a run begins with ([lora] init): a full one.
int64_t starting_rank(const Server& server) {
  int64_t most = 0;
  if (!server.config->lora.init.empty())
    for (const auto& [name, site] : server.sites) most = std::max(most, std::min(site.in, site.out));
  return most;
}

/// Returns the shape of `expected` at another rank.
std::vector<int64_t> at_rank(const at::Tensor& expected, const lora::Factor& factor, int64_t rank) {
  auto shape = expected.sizes().vec();
  if (factor.ranked_rows) shape[shape.size() - 2] = rank;
  if (factor.ranked_columns) shape[shape.size() - 1] = rank;
  return shape;
}

void check_upload(const lora::LoraFactors& sent, const lora::LoraFactors& expected, std::optional<int64_t> up_to,
                  const std::string& name, const std::string& source) {
  EK_CHECK(sent.scaling == expected.scaling, kData, source, ": the scaling of ", name, " is ", sent.scaling,
           ", expected ", expected.scaling);
  EK_CHECK(!sent.ranks.defined(), kData, source, ": the experts of ", name, " differ in rank");
  for (const auto& factor : lora::kFactors) {
    const auto &one = sent.*factor.tensor, &other = expected.*factor.tensor;
    const auto full = concat(name, "/", factor.name);
    EK_CHECK(one.defined() == other.defined(), kData, source, ": ", full,
             one.defined() ? " was not to be sent" : " is missing");
    if (!one.defined()) continue;
    const int64_t rank = sent.rank(), most = up_to.value_or(expected.rank());
    EK_CHECK(rank == most || (up_to && rank >= 1 && rank < most), kData, source, ": ", full, " is of rank ", rank,
             ", expected ", most, up_to ? " or less" : "");
    require_shape(one, std::nullopt, at_rank(other, factor, rank), full, source);
    require_bounded(one, full, source);
  }
}

void check_upload(const at::Tensor& sent, const at::Tensor& expected, const std::string& name,
                  const std::string& source) {
  require_shape(sent, expected.scalar_type(), expected.sizes(), name, source);
  require_bounded(sent, name, source);
  const bool counts = !sent.is_floating_point() && sent.numel() > 0;
  EK_CHECK(!counts || sent.min().item<int64_t>() >= 0, kData, source, ": ", name, " counts less than nothing");
}

/// Checks the losses: means over targets, and their sum, which is 0 without a target.
void check_losses(const train::LocalReport& report, const std::string& source) {
  for (const double loss : {report.first_loss, report.last_loss})
    EK_CHECK(loss >= 0 && loss <= kMostLoss, kData, source, ": a loss of ", loss, ", allowed: 0 to ", kMostLoss);
  const double most = kMostLoss * static_cast<double>(report.targets);
  EK_CHECK(report.loss_sum >= 0 && report.loss_sum <= most, kData, source, ": a loss of ", report.loss_sum, " over ",
           report.targets, " targets, allowed: 0 to ", most);
}

/// Checks the metrics against those that the method measures.
void check_metrics(const std::map<std::string, double>& metrics, std::span<const methods::MetricRange> known,
                   const std::string& source) {
  constexpr double kRounding = 1e-6;  // of means
  for (const auto& [name, value] : metrics) {
    const auto metric = std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.name == name; });
    EK_CHECK(metric != known.end(), kData, source, ": ", shown(name), " is no metric of the method");
    const double most = std::min(metric->most, kMostMeasure);
    EK_CHECK(value >= metric->least - kRounding && value <= most + kRounding, kData, source, ": ", name, " is ", value,
             ", allowed: ", metric->least, " to ", most);
  }
}

/// Checks losses, times and metrics.
void check_measures(const train::LocalReport& report, const methods::MethodEntry& method, const std::string& source) {
  check_losses(report, source);
  const double steps = report.step_seconds, move = report.move_seconds.value_or(0);
  for (const double time : {report.seconds, steps, move})
    EK_CHECK(is_duration(time), kData, source, ": a time of ", time, " s, allowed: 0, or ", kLeastSeconds, " to ",
             kMostSeconds);
  constexpr double kRounding = 1e-6;
  EK_CHECK(steps + move <= report.seconds * (1 + kRounding), kData, source, ": ", steps, " s of steps and ", move,
           " s of copies in ", report.seconds, " s of training");
  check_metrics(report.metrics, method.metrics, source);
}

/// Checks the expert counts of a layer. A token chooses an expert once at most, and K_c experts in all.
void check_counts(const nn::RoutingStats& stats, int64_t experts, const methods::ClientProfile& client,
                  int64_t most_tokens, const std::string& source) {
  EK_CHECK(stats.tokens >= 1 && stats.tokens <= most_tokens, kData, source, " are of ", stats.tokens,
           " tokens, allowed: 1 to ", most_tokens);
  const bool fits = stats.counts.numel() == experts && stats.counts.min().item<int64_t>() >= 0 &&
                    stats.counts.max().item<int64_t>() <= stats.tokens;
  EK_CHECK(fits, kData, source, " are not ", experts, " numbers of 0 to ", stats.tokens);
  const auto chosen = stats.counts.sum().item<int64_t>();
  EK_CHECK(chosen == stats.tokens * client.top_k, kData, source, " add up to ", chosen, ", expected ", stats.tokens,
           " tokens times ", client.top_k);
}

/// Checks that the counts in an upload, "<layer>.counts" and "<layer>.tokens", are those of the report.
void check_same_counts(const TensorMap& extras, const nn::RoutingByLayer& counts, const std::string& source) {
  for (const auto& [layer, stats] : counts) {
    const auto sent = extras.find(layer + ".counts"), tokens = extras.find(layer + ".tokens");
    const bool same = (sent == extras.end() || at::equal(sent->second.to(at::kLong), stats.counts.to(at::kLong))) &&
                      (tokens == extras.end() || tokens->second.sum().item<int64_t>() == stats.tokens);
    EK_CHECK(same, kData, source, ": the expert counts of ", layer, " differ between upload and report");
  }
}

/// Checks what a client says of its private training. The server cannot verify it.
void check_private(const train::PrivateReport& report, const std::string& source) {
  const auto check = [&](const char* what, double value, double most) {
    EK_CHECK(value >= 0 && value <= most, kData, source, ": privacy.", what, " is ", value, ", allowed: 0 to ", most);
  };
  check("noise", report.noise, privacy::kMostNoise);
  check("clip", report.clip, kMostMeasure);
  check("sampling", report.sampling, 1);
  check("epsilon", report.epsilon, kMostMeasure);
  check("delta", report.delta, 1);
  if (report.signal) check("signal", *report.signal, kMostMeasure);
}

/// Checks that a withheld report has its steps alone.
void check_withheld(const methods::MethodEntry& method, const train::LocalReport& report, const std::string& source) {
  EK_CHECK(method.rows_by_gradients, kData, source, " withholds its report, which clients of method ", method.name,
           " cannot");
  const bool bare =
      report.measures_no_rows() && report.seconds == 0 && report.step_seconds == 0 && !report.move_seconds;
  EK_CHECK(bare, kData, source, " withholds its report, and brings more of it than its steps");
}

/// Checks the number of steps, which follows from the client's agreed number of rows.
void check_steps(const Server& server, const methods::ClientProfile& client, const train::LocalReport& report,
                 const std::string& source) {
  const int64_t steps = train::local_steps(server.config->train, static_cast<int64_t>(client.examples));
  EK_CHECK(report.steps == steps, kData, source, ": ", report.steps, " steps, expected ", steps);
}

/// Checks that a report has no measure of the client's rows.
void check_open(const Server& server, const methods::ClientProfile& client, const train::LocalReport& report,
                const std::string& source) {
  check_steps(server, client, report, source);
  const bool bare = report.measures_no_rows() && !(report.privacy && report.privacy->signal);
  EK_CHECK(bare, kData, source, " has measures of the client's own rows beside a hidden upload");
  if (report.privacy) check_private(*report.privacy, source);
  check_measures(report, server.config->method.entry(), source);
}

/// Checks that a report is possible for the client's agreed number of rows.
void check_report(const Server& server, const methods::ClientProfile& client, const train::LocalReport& report,
                  const std::string& source) {
  const auto& config = server.config;
  check_steps(server, client, report, source);
  if (report.privacy) check_private(*report.privacy, source);
  if (report.privacy && report.privacy->withheld) return check_withheld(config->method.entry(), report, source);
  const int64_t most = train::rows_of_round(config->train, static_cast<int64_t>(client.examples)) * config->data.cutoff;
  EK_CHECK(report.tokens <= most && report.targets <= report.tokens, kData, source, ": ", report.targets,
           " targets in ", report.tokens, " tokens, allowed: up to ", most);
  check_measures(report, config->method.entry(), source);
  EK_CHECK(report.counts.size() == server.model.moe_layers.size(), kData, source, ": expert counts of ",
           report.counts.size(), " layers, expected ", server.model.moe_layers.size());
  for (const auto& layer : server.model.moe_layers) {
    const auto counts = report.counts.find(layer);
    const auto named = concat(source, ": the expert counts of ", layer);
    EK_CHECK(counts != report.counts.end(), kData, named, " are missing");
    check_counts(counts->second, server.model.num_experts, client, std::min(most, report.tokens), named);
  }
}

/// Returns the upload of a reply. \throws kData if it has none
const lora::EncodedPayload& required_upload(const Reply& reply, const std::string& source) {
  const auto* payload = encoded_payload(reply.upload);
  EK_CHECK(payload, kData, source, " brings no upload");
  return *payload;
}

/// Checks that the bytes by content add up to the size of the upload, and that the contents are those of the method.
void check_parts(const lora::EncodedPayload& sent, const std::map<std::string, int64_t>& expected,
                 const std::string& source) {
  int64_t left = sent.size();
  for (const auto& [content, bytes] : sent.parts) {
    EK_CHECK(expected.contains(content), kData, source, ": bytes of ", shown(content), ", which was not to be sent");
    EK_CHECK(bytes <= left, kData, source, ": ", bytes, " bytes of ", content, " in an upload of ", sent.size());
    left -= bytes;
  }
  EK_CHECK(left == 0, kData, source, ": the bytes by content leave out ", left, " of the upload's ", sent.size());
}

template <typename Map>
void check_names(const Map& sent, const Map& expected, const std::string& source) {
  for (const auto& [name, value] : sent)
    EK_CHECK(expected.contains(name), kData, source, ": ", shown(name), " was not to be sent");
  for (const auto& [name, value] : expected) EK_CHECK(sent.contains(name), kData, source, ": ", name, " is missing");
}

/// Checks that an upload is a summand of these parts.
void check_summand(const lora::Payload& sent, const lora::Payload& expected, const std::string& source) {
  EK_CHECK(sent.base_delta.empty() && sent.adapters.empty(), kData, source, " brings factors beside a hidden upload");
  check_names(sent.extras, expected.extras, source);
  for (const auto& [name, tensor] : sent.extras) {
    const auto& part = expected.extras.at(name);
    require_shape(tensor, part.scalar_type(), part.sizes(), name, source);
  }
}

}  // namespace

DownloadTerms download_terms(const Server& server, const methods::ClientProfile& client) {
  const int64_t delta_rank = server.config->method.entry().changes_base ? changed_rank(server) : 0;
  // Adapters, as much beside them (pseudo-gradients), what the base gained.
  return {.rank = client.rank,
          .delta_rank = delta_rank,
          .values = models::lora_parameters(server.sites, 2 * client.rank + delta_rank) + kVectors};
}

DownloadTerms news_terms(const Server& server, int64_t round) {
  const int64_t rank = server.max_rank();
  const bool changes = server.config->method.entry().changes_base;
  const int64_t delta_rank = changes ? starting_rank(server) + (round + 1) * changed_rank(server) : 0;
  return {.rank = rank,
          .delta_rank = delta_rank,
          .values = models::lora_parameters(server.sites, rank + delta_rank) + kVectors};
}

void check_download(const lora::Payload& payload, const lora::Sites& sites, const DownloadTerms& terms,
                    const std::string& source) {
  EK_CHECK(payload.base_delta.empty() || terms.delta_rank > 0, kData, source,
           " changes the base, which the method agreed on does not");
  const int64_t values = all_values(payload);
  EK_CHECK(values <= terms.values, kData, source, " holds ", values, " values, agreed on: up to ", terms.values);
  check_state(payload.adapters, sites, terms.rank, source);
  check_state(payload.base_delta, sites, terms.delta_rank, source);
  for (const auto& [name, tensor] : payload.extras) require_finite(tensor, shown(name), source);
}

void check_upload(const lora::Payload& sent, const lora::Payload& expected, std::optional<int64_t> up_to,
                  const std::string& source) {
  EK_CHECK(sent.base_delta.empty(), kData, source, " brings a change of the base, which is the server's to make");
  check_names(sent.adapters, expected.adapters, source);
  check_names(sent.extras, expected.extras, source);
  for (const auto& [name, factors] : sent.adapters)
    check_upload(factors, expected.adapters.at(name), up_to, name, source);
  for (const auto& [name, tensor] : sent.extras) check_upload(tensor, expected.extras.at(name), name, source);
}

double check_training_reply(const Server& server, const methods::ServerState& state,
                            const methods::ClientProfile& client, const Reply& reply) {
  const auto source = concat("the reply of ", server.config->clients.who(client.id));
  check_report(server, client, report_of<train::LocalReport>(reply), source);
  const auto& payload = required_upload(reply, source);
  const auto sent = lora::decode(payload.bytes, source);
  const auto download = server.method->broadcast(state, client, {.round = state.round});
  const auto up_to = server.config->method.entry().takes_unequal_ranks() ? std::optional(client.rank) : std::nullopt;
  const auto expected = expected_upload(server, state, client, download);
  check_upload(sent, expected, up_to, source);
  server.method->check_upload(sent, client);
  check_same_counts(sent.extras, report_of<train::LocalReport>(reply).counts, source);
  check_parts(payload, lora::payload_parts(expected, server.config->train.transport_dtype, server.sites), source);
  return update_norm(server, state, client, sent);
}

void check_summed_reply(const Server& server, const methods::ServerState& state, const methods::ClientProfile& client,
                        const Reply& reply) {
  const auto source = concat("the reply of ", server.config->clients.who(client.id));
  check_open(server, client, report_of<train::LocalReport>(reply), source);
  const auto& payload = required_upload(reply, source);
  const auto layout = server.summed_layout(state, client);
  const secure::RingFormat format{.bits = server.config->secure_aggregation.bits};
  const auto part = [](int64_t count, at::ScalarType type) {
    return at::empty({count}, at::TensorOptions(type).device(at::kMeta));
  };
  const lora::Payload expected{.extras = {{kSummedValues, part(layout.values(), format.type())},
                                          {kSummedCounts, part(layout.counts(), at::kLong)}}};
  check_summand(lora::decode(payload.bytes, source), expected, source);
  check_parts(payload, lora::payload_parts(expected, lora::TransportDtype::kAsTheyAre, server.sites), source);
}

}  // namespace evenkeel::fed
