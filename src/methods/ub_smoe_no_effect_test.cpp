#include "methods/ub_smoe_no_effect.h"

#include <gtest/gtest.h>

namespace evenkeel::methods::ubsmoe {
namespace {

/// Returns the lines of `values_without_effect` for keys as TOML.
std::vector<std::string> lines(const std::string& toml) {
  Options options;
  config::read(config::Table::parse(toml, "test"), options);
  return values_without_effect(options);
}

std::string only_line(const std::string& toml) {
  const auto all = lines(toml);
  return all.size() == 1 ? all[0] : concat(all.size(), " lines: ", join(all, " | "));
}

TEST(UbSmoeNoEffect, DefaultsAndValuesThatActAreNotNamed) {
  for (const auto* toml :
       {"", "pg = false", "num_candidates = 0", "phi_train = 'off'", "phi_range = [-2.0, 2.0]", "pg_clip = 3.0",
        "phi_update = 'off'\nphi_train = 'local_fedavg'", "phi_train = 'local_fedavg'\nphi_penalty = 'l2'",
        "dmr_mode = 'preserve'\nnum_candidates = 0\nphi_momentum = 0.5", "rho_fn = 'none'",
        "pg = false\nkbar_over = 'clients'", "num_candidates = 0\nkbar_over = 'clients'"})
    EXPECT_TRUE(lines(toml).empty()) << toml << ": " << join(lines(toml), " | ");
}

TEST(UbSmoeNoEffect, ThePhiThatStaysZeroIsNamedWithTheWayOut) {
  EXPECT_EQ(only_line("phi_update = 'off'"),
            "method.ub-smoe: the server's phi stays 0 for ever, because phi_update is off and clients discard the phi "
            "they train; phi_train = \"local_fedavg\" keeps what clients train");
  EXPECT_NE(only_line("phi_update = 'off'\nphi_train = 'off'").find("phi_update is off and phi_train is off"),
            std::string::npos);
  EXPECT_NE(only_line("phi_momentum = 1.0").find("phi_momentum is 1"), std::string::npos);
  EXPECT_NE(lines("phi_range = [0.0, 0.0]").at(0).find("phi_range is [0, 0]"), std::string::npos);
  EXPECT_TRUE(lines("phi_momentum = 1.0\nphi_train = 'local_fedavg'").empty());
}

TEST(UbSmoeNoEffect, AKeyIsNamedWithItsValueAndTheKeyThatStopsIt) {
  EXPECT_EQ(only_line("pg = false\npg_clip = 3.0"), "method.ub-smoe.pg_clip is 3.0, but has no effect: pg is false");
  EXPECT_EQ(only_line("num_candidates = 0\nphi_range = [-2.0, 2.0]"),
            "method.ub-smoe.phi_range is [-2.0, 2.0], but has no effect: num_candidates is 0, so phi is added to no "
            "expert");
  EXPECT_EQ(only_line("rho_fn = 'none'\nrho_ref = 'kmax'"),
            "method.ub-smoe.rho_ref is \"kmax\", but has no effect: rho_fn is none");
  EXPECT_EQ(only_line("phi_scale = 'clip'"),
            "method.ub-smoe.phi_scale is \"clip\", but has no effect: phi_range is [-1, 1]");
  EXPECT_TRUE(lines("phi_scale = 'none'\nphi_range = [0.0, 0.0]").empty());
  EXPECT_EQ(only_line("pg_clip_mode = 'off'\npg_clip = 1.5"),
            "method.ub-smoe.pg_clip is 1.5, but has no effect: pg_clip_mode is off");
  EXPECT_EQ(only_line("phi_train = 'off'\nlambda_phi = 0.5"),
            "method.ub-smoe.lambda_phi is 0.5, but has no effect: phi_train is off");
  EXPECT_EQ(only_line("num_candidates = 0\nrho_fn = 'none'\nkbar_over = 'clients'"),
            "method.ub-smoe.kbar_over is \"clients\", but has no effect: neither phi nor rho uses Kbar");
  EXPECT_EQ(only_line("pg = false\npg_source = 'placebo'"),
            "method.ub-smoe.pg_source is \"placebo\", but has no effect: pg is false");
  EXPECT_EQ(only_line("num_candidates = 0\nutil_frequency = 'per_selection'"),
            "method.ub-smoe.util_frequency is \"per_selection\", but has no effect: num_candidates is 0, so phi is "
            "added to no expert");
  EXPECT_EQ(only_line("lambda_phi = 0.0\nphi_penalty = 'l2'"),
            "method.ub-smoe.phi_penalty is \"l2\", but has no effect: lambda_phi is 0");
}

TEST(UbSmoeNoEffect, EachKeyIsNamedOnce) {
  const auto all = lines("pg = false\npg_clip_mode = 'off'\npg_clip = 1.5\nrho_fn = 'none'\nrho_ref = 'kmax'");
  EXPECT_EQ(all.size(), 4u) << join(all, " | ");
}

}  // namespace
}  // namespace evenkeel::methods::ubsmoe
