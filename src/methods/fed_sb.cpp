// Fed-SB: federated "silver bullet". Singhal, Ponkshe, Vartak, Varshney, Vepakomma, "Fed-SB: A Silver Bullet for
// Extreme Communication Efficiency and Performance in (Private) Federated LoRA Fine-Tuning", 2025, arXiv:2502.15436;
// the start is that of LoRA-SB (Ponkshe et al. 2024, arXiv:2411.19557).
//
//   start    D = -eta sign(sum of full gradients over a sample) = U S V^T;   B = U[:, :r], A = V^T[:r], R = S[:r] / s
//   client   trains R_c alone, in W + s B R A
//   server   R = sum_c p_c R_c, which is exact: A and B are everybody's
//
// R is not zero at the start, so round 0 contains the best approximation of a first step instead of the pretrained
// model. An expert without a token in the sample has D = 0. It gets random orthonormal factors and R = 0.
#include <ATen/ATen.h>

#include <algorithm>

#include "base/random/random.h"
#include "base/system/factorizations.h"
#include "lora/algebra.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

struct Config {
  SampleFrom init = SampleFrom::kPooled;
  int64_t samples = 170;
  void visit(auto& field) {
    field("init", init,
          "sample for the initialisation: pooled (from all rows together) or federated (an equal share from each "
          "client)");
    field("samples", samples, "number of rows in the sample, 1 or more");
  }

  void resolve(const config::Table& table) const { table.check(samples >= 1, "samples", samples, "1 or more"); }
};

/// Draws a matrix with orthonormal columns from (seed, name, expert).
/// \return [rows, columns] float64
at::Tensor random_basis(int64_t rows, int64_t columns, RandomStream stream) {
  auto draw = at::empty({rows, columns}, at::kFloat);
  stream.fill_normal({draw.mutable_data_ptr<float>(), static_cast<size_t>(draw.numel())}, 1.0);
  return std::get<0>(at::linalg_qr(draw.to(at::kDouble)));
}

/// Computes the initial B, A and R of one matrix.
/// \param d  [out, in] float64
lora::LoraFactors start_of_matrix(const at::Tensor& d, int64_t rank, const std::string& name, uint64_t expert,
                                  uint64_t seed) {
  if (d.eq(0).all().item<bool>())
    return {.a = random_basis(d.size(1), rank, {seed, name + "/a", expert}).t(),
            .b = random_basis(d.size(0), rank, {seed, name + "/b", expert}),
            .core = at::zeros({rank, rank}, at::kDouble)};
  const auto svd = lora::truncated_svd(d, rank);
  return {.a = svd.vt, .b = svd.u, .core = at::diag(svd.s)};
}

lora::LoraFactors start_of_site(const std::string& name, const at::Tensor& gradient, int64_t rank,
                                const ServerView& server) {
  const double scaling = server.scale.of(server.rank);
  const auto matrices = gradient.dim() == 3 ? gradient : gradient.unsqueeze(0);
  const auto count = static_cast<size_t>(matrices.size(0));
  std::vector<at::Tensor> a(count), b(count), core(count);
  for_each_factorization(matrices.size(0), [&](int64_t i) {
    const auto e = static_cast<size_t>(i);
    const auto d = matrices[i].to(at::kDouble).sign() * -server.lr;
    const auto start = start_of_matrix(d, rank, name, e, server.seed);
    a[e] = start.a.to(at::kFloat);
    b[e] = start.b.to(at::kFloat);
    core[e] = (start.core / scaling).to(at::kFloat);
  });
  const auto joined = [&](const std::vector<at::Tensor>& parts) {
    return gradient.dim() == 3 ? at::stack(parts) : parts[0].contiguous();
  };
  return {.a = joined(a), .b = joined(b), .core = joined(core), .scaling = scaling};
}

class FedSb : public FederatedMethod {
 public:
  explicit FedSb(const Config& config) : config_(config) {}

  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.trainable = Trainable::kCore;
    return setup;
  }

  lora::Payload upload(const lora::Payload&, const LocalSetup& setup, const nn::RoutingByLayer&,
                       const ClientView&) const override {
    lora::Payload payload;
    for (const auto& [site, factors] : setup.adapters)
      payload.adapters[site] = {.core = factors.core.detach(), .scaling = factors.scaling};
    return payload;
  }

  ServerState initialize(const ServerView& server) const override {
    EK_CHECK(server.gradient_sum, kConfig,
             "method fed-sb starts from gradients over training rows: there are none here");
    ServerState state;
    for (const auto& [site, shape] : server.sites) {
      const int64_t rank = std::min({server.rank, shape.in, shape.out});
      const auto gradient = server.gradient_sum(site, {.rows = config_.samples, .from = config_.init});
      auto start = start_of_site(site, gradient, rank, server);
      state.global.adapters[site] = {.core = std::move(start.core), .scaling = start.scaling};
      state.common.fixed[site] = {.a = std::move(start.a), .b = std::move(start.b), .scaling = start.scaling};
    }
    lora::check_finite(state.common.fixed, "the start of fed-sb");
    return state;
  }

 private:
  const Config config_;
};

}  // namespace

MethodEntry fed_sb() {
  return method_entry<FedSb, Config>({.name = "fed-sb",
                                      .title = "Fed-SB",
                                      .paper = "Singhal et al.: Fed-SB, 2025, arXiv:2502.15436",
                                      .family = MethodFamily::kHomogeneous,
                                      .exact = true,
                                      .needs_experts = false,
                                      .why_single = "begins with sums of gradients of single clients",
                                      .sends = "the r x r core of every adapted weight",
                                      .starts_from_adapter = false,
                                      .asks_gradients = true,
                                      .by_site = true});
}

}  // namespace evenkeel::methods
