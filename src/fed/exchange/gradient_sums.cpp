#include "fed/exchange/gradient_sums.h"

#include <ATen/ATen.h>

#include <map>

#include "base/plain/text.h"
#include "fed/exchange/reported_numbers.h"
#include "train/weight_gradient.h"

namespace evenkeel::fed {
namespace {

/// Rows in the order of drawing, by their K_c.
using RowsByTopK = std::map<int64_t, std::vector<const data::Example*>>;

RowsByTopK draw_rows(std::span<const OwnedRow> rows, int64_t count, RandomStream stream) {
  const auto order = stream.permutation(static_cast<int64_t>(rows.size()));
  RowsByTopK drawn;
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < count; ++i) {
    const auto& row = rows[static_cast<size_t>(order[i])];
    drawn[row.top_k].push_back(row.example);
  }
  return drawn;
}

TensorMap gradients_of(const ClientContext& context, const SumGradients& ask, const RowsByTopK& rows) {
  lora::Sites sites;
  for (const auto& site : ask.sites) sites.emplace(site, context.sites.at(site));
  TensorMap sums;
  for (const auto& [top_k, examples] : rows) {
    const train::GradientRows of{.rows = examples,
                                 .batch_size = context.config->train.batch_size,
                                 .router = {.top_k = top_k, .gate_norm = context.config->method.gate_norm},
                                 .compute = context.config->model.compute()};
    for (auto& [site, part] : train::weight_gradients(*context.model, sites, of)) {
      auto& sum = sums[gradient_name(site)];
      sum = sum.defined() ? sum.add_(part) : part;
    }
  }
  return sums;
}

}  // namespace

std::string gradient_name(const std::string& site) { return site + ".gradient"; }

Reply sum_gradients(const ClientContext& context, const Task& task, std::span<const OwnedRow> rows, int64_t count,
                    RandomStream stream) {
  Reply reply{.client = task.client.id};
  auto sums = gradients_of(context, std::get<SumGradients>(task.ask), draw_rows(rows, count, std::move(stream)));
  if (!sums.empty())
    reply.upload = lora::encode({.extras = std::move(sums)}, lora::TransportDtype::kFloat32, context.sites);
  return reply;
}

TensorMap gradients_in(const Reply& reply) {
  const auto* payload = encoded_payload(reply.upload);
  return payload ? lora::decode(payload->bytes, concat("gradients of client ", reply.client)).extras : TensorMap{};
}

void check_gradients(const lora::Sites& sites, const SumGradients& ask, const Reply& reply) {
  const auto gradients = gradients_in(reply);
  if (gradients.empty()) return;
  EK_CHECK(gradients.size() == ask.sites.size(), kData, "client ", reply.client, " sent ", gradients.size(),
           " gradients, asked for ", ask.sites.size());
  for (const auto& name : ask.sites) {
    const auto found = gradients.find(gradient_name(name));
    EK_CHECK(found != gradients.end(), kData, "client ", reply.client, " was asked for the gradient of ", name,
             " and sent none");
    const auto& site = sites.at(name);
    const auto shape = lora::stacked_shape(site, site.out, site.in);
    EK_CHECK(found->second.sizes() == at::IntArrayRef(shape) && found->second.scalar_type() == at::kFloat &&
                 found->second.abs().max().item<double>() <= kMostGradient,
             kData, "a gradient of client ", reply.client, " is [", join(found->second.sizes().vec()),
             "], expected finite numbers up to ", kMostGradient, " of [", join(shape), "]");
  }
}

}  // namespace evenkeel::fed
