#include "scoring/generation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/format/safetensors.h"
#include "base/plain/error.h"
#include "base/testing.h"
#include "models/testing.h"
#include "scoring/beam_search.h"
#include "scoring/continuations.h"
#include "scoring/likelihood.h"

namespace evenkeel::scoring {
namespace {

const std::vector<TokenIds> kPrompts{{5, 9, 31, 2}, {44}, {12, 3, 3, 8, 60, 21, 17, 9, 2, 4, 5}, {7, 7}};

TokenIds greedy_without_cache(const models::CausalLm& model, const models::ForwardOptions& forward, TokenIds ids,
                              int64_t count) {
  const at::NoGradGuard no_grad;
  const size_t prompt = ids.size();
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<TokenIds> one{ids};
    const auto logits_TV = model.logits(model.hidden(data::pack_ids(one), forward), forward);
    ids.push_back(logits_TV[-1].argmax().item<int64_t>());
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(prompt), ids.end()};
}

double logprob_of(const models::CausalLm& model, const models::ForwardOptions& forward, const TokenIds& ids) {
  double logprob = 0;
  const std::vector<TokenIds> one{ids};
  score_texts(model, forward, one, {}, [&](size_t, const TextScore& score) { logprob = score.logprob; });
  return logprob;
}

TokenIds joined(TokenIds first, const TokenIds& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(CachedTokens, AreThePromptsAndTheirPlacesOrCopies) {
  const auto tokens = [](const std::vector<int64_t>& lengths, int64_t beams, c10::Device device,
                         nn::EngineKind engine = nn::EngineKind::kKernels) {
    PromptSizes sizes;
    for (const int64_t length : lengths) sizes.add(length);
    return cached_tokens(sizes, 4, beams, device, engine);
  };
  EXPECT_EQ(tokens({60, 50, 60}, 1, c10::kCPU), 170 + 3 * 4);
  EXPECT_EQ(tokens({60, 50, 60}, 1, c10::kCUDA), 170 + 4 * 64) << "four places of 64 tokens";
  EXPECT_EQ(tokens({60, 50, 61}, 1, c10::kCUDA), 171 + 4 * 128);
  EXPECT_EQ(tokens({1, 1, 1, 500}, 1, c10::kCUDA), 503 + 2 * (503 + 4 * 4) + 4 * 64) << "too unequal for places";
  EXPECT_EQ(tokens({60, 50, 60}, 4, c10::kCPU), 170 + 3 * 4 * 4);
  EXPECT_EQ(tokens({60, 50, 60}, 4, c10::kCUDA), 170 + 3 * 4 * 4 + 4 * (170 + 3 * 4)) << "and a copy of each beam";
  EXPECT_EQ(tokens({60, 50, 60}, 1, c10::kCPU, nn::EngineKind::kAten), 2 * (170 + 3 * 4)) << "and their copies";
  EXPECT_EQ(tokens({60, 50, 60}, 4, c10::kCPU, nn::EngineKind::kAten), 170 + 3 * 4 * 4 + 4 * (170 + 3 * 4));
}

TEST(Generate, GreedyEqualsAFullForwardPassPerToken) {
  const auto model = testing::random_model(3);
  for (const int64_t top_k : {1, 3, 5}) {
    models::ForwardOptions forward;
    forward.router.top_k = top_k;
    const auto outputs = generate(*model, forward, kPrompts, {.max_new_tokens = 12, .eos = TokenIds{1000}});
    for (size_t i = 0; i < kPrompts.size(); ++i)
      EXPECT_EQ(outputs[i], greedy_without_cache(*model, forward, kPrompts[i], 12)) << "prompt " << i;
  }
}

// Hidden states have the type of the embedding, and so have cached keys and values.
TEST(Generate, AFloat64EmbeddingBesideNarrowerWeightsHasACacheOfItsType) {
  const testing::TemporaryFolder folder;
  models::save_model(*testing::random_model(3), folder.path() / "model");
  const auto file = folder.path() / "model/model.safetensors";
  TensorMap tensors;
  for (const auto& [name, tensor] : load_safetensors(file).tensors)
    tensors[name] = name.find("embed") == name.npos ? tensor.clone() : tensor.to(at::kDouble);
  save_safetensors(file, tensors);
  const auto model = models::load_model(folder.path() / "model");
  const auto outputs = generate(*model, {}, kPrompts, {.max_new_tokens = 5, .eos = TokenIds{1000}});
  for (size_t i = 0; i < kPrompts.size(); ++i)
    EXPECT_EQ(outputs[i], greedy_without_cache(*model, {}, kPrompts[i], 5)) << "prompt " << i;
}

TEST(Generate, AFinishedSequenceDoesNotChangeTheOthers) {
  const auto model = testing::random_model(4);
  const auto full = generate(*model, {}, kPrompts, {.max_new_tokens = 15, .eos = TokenIds{1000}});
  for (const int64_t eos : {full[0][2], full[1][0], full[2][14]}) {
    const auto stopped = generate(*model, {}, kPrompts, {.max_new_tokens = 15, .eos = TokenIds{eos}});
    for (size_t i = 0; i < full.size(); ++i)
      EXPECT_EQ(stopped[i], TokenIds(full[i].begin(), std::find(full[i].begin(), full[i].end(), eos)));
  }
}

TEST(Generate, BeamsOfABatchEqualBeamsOfSinglePrompts) {
  const auto model = testing::random_model(5);
  const GenerationOptions options{.max_new_tokens = 9, .beams = 3, .eos = TokenIds{11}};
  const auto together = generate(*model, {}, kPrompts, options);
  for (size_t i = 0; i < kPrompts.size(); ++i)
    EXPECT_EQ(together[i], generate(*model, {}, std::span(kPrompts).subspan(i, 1), options).front());
}

TEST(Generate, BeamsThatDoNotFitIntoMemoryAreRefusedBeforeTheyAreAllocated) {
  const auto model = testing::random_model(5);
  auto run = run_prompts(*model, {}, kPrompts, {.max_new_tokens = 1});
  const GenerationOptions options{.max_new_tokens = int64_t{1} << 28, .beams = 1024};
  const auto text = testing::refusal([&] { generate(*model, {}, std::move(run), options); });
  EXPECT_TRUE(text.starts_with("[config] ")) << text;
  EXPECT_NE(text.find("caches of 4 prompts"), std::string::npos) << text;
}

TEST(Generate, WiderBeamsFindTextsThatAreAtLeastAsLikely) {
  const auto model = testing::random_model(6);
  const auto narrow = generate(*model, {}, kPrompts, {.max_new_tokens = 6, .beams = 1, .eos = TokenIds{1000}});
  const auto wide = generate(*model, {}, kPrompts, {.max_new_tokens = 6, .beams = 24, .eos = TokenIds{1000}});
  for (size_t i = 0; i < kPrompts.size(); ++i)
    EXPECT_GE(logprob_of(*model, {}, joined(kPrompts[i], wide[i])) + 1e-4,
              logprob_of(*model, {}, joined(kPrompts[i], narrow[i])));
}

TEST(Generate, RejectsPromptsThatDoNotFit) {
  const auto model = testing::random_model(7);
  const std::vector<TokenIds> empty{{3}, {}}, foreign{{67}}, longest{TokenIds(500, 3)};
  EXPECT_THROW(generate(*model, {}, empty, {}), Error);
  EXPECT_THROW(generate(*model, {}, foreign, {}), Error);
  EXPECT_THROW(generate(*model, {}, longest, {.max_new_tokens = 13}), Error);
  EXPECT_EQ(generate(*model, {}, longest, {.max_new_tokens = 12, .eos = TokenIds{1000}}).front().size(), 12u);
}

TEST(ContinuationLogprobs, EqualTheDifferenceOfWholeTexts) {
  const auto model = testing::random_model(8);
  const std::vector<std::vector<TokenIds>> continuations{
      {{1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 3, 6, 7, 8}},  // have a common prefix
      {{9}, {10}},                                       // have none
      {{20, 21}, {20, 21, 22}, {20}},                    // one is a prefix of another
      {{30, 31, 32}},
  };
  auto run = run_prompts(*model, {}, kPrompts, {.max_new_tokens = 8});
  const auto together = continuation_logprobs(*model, {}, run, continuations);
  for (size_t b = 0; b < kPrompts.size(); ++b) {
    auto run_alone = run_prompts(*model, {}, std::span(kPrompts).subspan(b, 1), {.max_new_tokens = 8});
    const auto alone = continuation_logprobs(*model, {}, run_alone, std::span(continuations).subspan(b, 1)).front();
    const double prompt = logprob_of(*model, {}, kPrompts[b]);
    for (size_t i = 0; i < continuations[b].size(); ++i) {
      const double expected = logprob_of(*model, {}, joined(kPrompts[b], continuations[b][i])) - prompt;
      EXPECT_NEAR(together[b][i], expected, 2e-4) << b << ' ' << i;
      EXPECT_NEAR(alone[i], expected, 2e-4) << b << ' ' << i;
    }
  }
}

TEST(ContinuationLogprobs, DoNotChangeTheRun) {
  const auto model = testing::random_model(9);
  const std::vector<std::vector<TokenIds>> continuations(kPrompts.size(), {{1, 2, 3}, {1, 2, 4}, {1, 5, 6, 7, 8}});
  const GenerationOptions options{.max_new_tokens = 10, .eos = TokenIds{1000}};
  auto run = run_prompts(*model, {}, kPrompts, {.max_new_tokens = 10});
  const auto first = continuation_logprobs(*model, {}, run, continuations);
  EXPECT_EQ(continuation_logprobs(*model, {}, run, continuations), first);
  EXPECT_EQ(generate(*model, {}, std::move(run), options), generate(*model, {}, kPrompts, options));
}

TokenIds first_of(const TokenIds& ids, size_t count, std::initializer_list<int64_t> then = {}) {
  TokenIds some(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  some.insert(some.end(), then);
  return some;
}

TEST(ContinuationLogprobs, ReuseGreedyTokensWhileTheGuessIsRight) {
  const auto model = testing::random_model(9);
  const auto greedy = generate(*model, {}, kPrompts, {.max_new_tokens = 8, .eos = TokenIds{1000}});
  const auto wrong = [&](size_t b, size_t at) { return (greedy[b][at] + 1) % 67; };
  const std::vector<std::vector<TokenIds>> guesses{
      {first_of(greedy[0], 5), first_of(greedy[0], 3, {wrong(0, 3), 2})},  // the first branch is right
      {first_of(greedy[1], 6)},                                            // a single guess, which is right
      {first_of(greedy[2], 2, {wrong(2, 2), 7}),
       first_of(greedy[2], 2, {wrong(2, 2), 8, 9})},                            // wrong from the third token on
      {first_of(greedy[3], 1, {wrong(3, 1)}), first_of(greedy[3], 4, {5, 6})},  // the second is right for four tokens
  };
  auto run = run_prompts(*model, {}, kPrompts, {.max_new_tokens = 8});
  continuation_logprobs(*model, {}, run, guesses);
  const std::vector<size_t> right{5, 6, 3, 5};
  for (size_t b = 0; b < kPrompts.size(); ++b) {
    EXPECT_EQ(run.known[b].tokens, first_of(greedy[b], right[b])) << b;
    EXPECT_EQ(run.known[b].cached.length(), static_cast<int64_t>(kPrompts[b].size() + right[b] - 1)) << b;
  }
  for (const int64_t eos : {int64_t{1000}, greedy[0][2], greedy[1][5], greedy[3][6]}) {
    auto again = run;
    EXPECT_EQ(generate(*model, {}, std::move(again), {.max_new_tokens = 8, .eos = TokenIds{eos}}),
              generate(*model, {}, kPrompts, {.max_new_tokens = 8, .eos = TokenIds{eos}}));
  }
  EXPECT_EQ(generate(*model, {}, std::move(run), {.max_new_tokens = 3, .eos = TokenIds{1000}}),
            generate(*model, {}, kPrompts, {.max_new_tokens = 3, .eos = TokenIds{1000}}));
}

/// Returns `length` tokens that look drawn.
TokenIds some_tokens(int64_t length, int64_t seed) {
  TokenIds ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back((i * i + seed * 5 + i / 3) % 67);
  return ids;
}

/// Returns the log-probability of `answer` after `prompt` from the logits of the whole text.
double answer_logprob(const models::CausalLm& model, const TokenIds& prompt, const TokenIds& answer) {
  const at::NoGradGuard no_grad;
  const std::vector<TokenIds> text{joined(prompt, answer)};
  const auto logprobs_TV = at::log_softmax(model.logits(model.hidden(data::pack_ids(text), {}), {}).to(at::kDouble), 1);
  double sum = 0;
  for (size_t i = prompt.size(); i < text[0].size(); ++i)
    sum += logprobs_TV[static_cast<int64_t>(i) - 1][text[0][i]].item<double>();
  return sum;
}

// Logits are computed for 64 rows at once: an answer of 130 tokens takes three parts.
TEST(ContinuationLogprobs, OfALongAnswerIsThatOfItsWholeText) {
  const auto model = testing::random_model(15);
  const std::vector<TokenIds> prompts{kPrompts[0]};
  const auto likely = generate(*model, {}, prompts, {.max_new_tokens = 130, .eos = TokenIds{}}).front();
  const auto other = joined({(likely[0] + 1) % 67}, some_tokens(129, 4));
  ASSERT_EQ(likely.size(), 130u);
  // A single continuation runs as the common prefix, two that differ in their first token as branches.
  const std::vector<std::vector<TokenIds>> cases{{likely}, {other}, {other, likely}};
  for (const auto& answers : cases) {
    const std::vector<std::vector<TokenIds>> continuations{answers};
    auto run = run_prompts(*model, {}, prompts, {.max_new_tokens = 130});
    const auto sums = continuation_logprobs(*model, {}, run, continuations).front();
    ASSERT_EQ(sums.size(), answers.size());
    for (size_t i = 0; i < answers.size(); ++i)
      EXPECT_NEAR(sums[i], answer_logprob(*model, prompts[0], answers[i]), 5e-3) << i;
    EXPECT_EQ(run.known[0].tokens, answers.back() == likely ? likely : first_of(likely, 1));
  }
}

/// Returns the number of tokens of all pieces together.
int64_t tokens_of(std::span<const TokenIds> pieces) {
  const auto lengths = lengths_of(pieces);
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

// Prompts, common prefixes and branches take more tokens than a pass has.
TEST(ContinuationLogprobs, OfPromptsInSeveralPassesEqualThoseOfSinglePrompts) {
  const auto model = testing::random_model(16);
  std::vector<TokenIds> prompts, shared, branches;
  std::vector<std::vector<TokenIds>> continuations;
  for (int64_t b = 0; b < 24; ++b) {
    prompts.push_back(some_tokens(180 + b, b));
    shared.push_back(some_tokens(200 - b, b + 30));
    auto& own = continuations.emplace_back();
    for (const int64_t first : {1, 2}) {
      branches.push_back(joined({first}, some_tokens(95 + b, b + 7 * first)));
      own.push_back(joined(shared.back(), branches.back()));
    }
  }
  for (const auto* pieces : {&prompts, &shared, &branches}) ASSERT_GT(tokens_of(*pieces), kPassTokens + 200);
  auto run = run_prompts(*model, {}, prompts, {.max_new_tokens = 300});
  const auto together = continuation_logprobs(*model, {}, run, continuations);
  for (const size_t b : {size_t{0}, size_t{13}, size_t{20}, size_t{23}}) {
    auto run_alone = run_prompts(*model, {}, std::span(prompts).subspan(b, 1), {.max_new_tokens = 300});
    const auto alone = continuation_logprobs(*model, {}, run_alone, std::span(continuations).subspan(b, 1)).front();
    ASSERT_EQ(together[b].size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[b][i], alone[i], 5e-3) << b << ' ' << i;
    EXPECT_EQ(run.known[b].tokens, run_alone.known[0].tokens) << b;
    EXPECT_EQ(run.known[b].cached.length(), run_alone.known[0].cached.length()) << b;
  }
}

TEST(PromptPrefix, IsTheCommonPrefixAndLeavesOneTokenPerPrompt) {
  EXPECT_EQ(common_prefix(std::vector<TokenIds>{{1, 2, 3, 4}, {1, 2, 3, 5, 6}}), (TokenIds{1, 2, 3}));
  EXPECT_EQ(common_prefix(std::vector<TokenIds>{{1, 2, 3}, {1, 2, 3, 5}}), (TokenIds{1, 2}));
  EXPECT_EQ(common_prefix(std::vector<TokenIds>{{1, 2, 3}}), TokenIds());
  EXPECT_EQ(common_prefix(kPrompts), TokenIds());
}

TEST(PromptPrefix, DoesNotChangeResults) {
  for (const auto dtype : {models::BaseDtype::kFloat32, models::BaseDtype::kFloat64}) {
    const auto model = testing::random_model(12, 67, dtype);
    const TokenIds beginning{4, 8, 15, 16, 23, 42};
    std::vector<TokenIds> prompts;
    for (const auto& prompt : kPrompts) prompts.push_back(joined(beginning, prompt));
    prompts.push_back({4, 8, 15, 3});  // differs from the prefix early
    prompts.push_back(beginning);
    const auto prefix = run_prefix(*model, {}, beginning, nn::KvType::kExact);
    const auto shared = run_prompts(*model, {}, prompts, {.max_new_tokens = 9, .prefix = &prefix});
    const auto alone = run_prompts(*model, {}, prompts, {.max_new_tokens = 9});
    EXPECT_LT((shared.last_BD - alone.last_BD).abs().max().item<double>(),
              dtype == models::BaseDtype::kFloat64 ? 1e-12 : 2e-5);
    EXPECT_EQ(shared.cache.lengths(), alone.cache.lengths());
    for (const int64_t beams : {1, 3}) {
      const GenerationOptions options{.max_new_tokens = 9, .beams = beams, .eos = TokenIds{11}};
      EXPECT_EQ(generate(*model, {}, shared, options), generate(*model, {}, alone, options));
    }
  }
}

TEST(Generate, StopsWhenIsEnoughReturnsTrue) {
  const auto model = testing::random_model(4);
  const auto full = generate(*model, {}, kPrompts, {.max_new_tokens = 15, .eos = TokenIds{1000}});
  const auto enough =
      generate(*model, {}, kPrompts,
               {.max_new_tokens = 15, .eos = TokenIds{1000}, .is_enough = [](size_t prompt, const TokenIds& ids) {
                  return ids.size() == prompt + 2;
                }});
  for (size_t b = 0; b < full.size(); ++b) EXPECT_EQ(enough[b], first_of(full[b], b + 2));
}

TEST(Generate, PromptsInSeveralPassesEqualSinglePrompts) {
  const auto model = testing::random_model(14);
  std::vector<TokenIds> prompts;
  for (int64_t b = 0; b < 24; ++b) prompts.push_back(some_tokens(190 + 7 * b, b));
  ASSERT_GT(tokens_of(prompts), kPassTokens);
  const auto together = generate(*model, {}, prompts, {.max_new_tokens = 4, .eos = TokenIds{1000}});
  for (const size_t b : {size_t{0}, size_t{13}, size_t{23}})
    EXPECT_EQ(together[b],
              generate(*model, {}, std::span(prompts).subspan(b, 1), {.max_new_tokens = 4, .eos = TokenIds{1000}})[0]);
}

at::Tensor logprobs(std::initializer_list<std::vector<float>> rows) {
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(at::tensor(row).log());
  return at::stack(tensors);
}

TEST(BeamSearch, KeepsABeamThatBecomesTheBest) {
  BeamSearch search(2, {0}, 2);
  const auto first = search.advance(logprobs({{0.01F, 0.5F, 0.4F, 0.09F}}));
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].token, 1);
  EXPECT_EQ(first[1].token, 2);
  EXPECT_TRUE(search.advance(logprobs({{0.1F, 0.3F, 0.3F, 0.3F}, {0.01F, 0.01F, 0.03F, 0.95F}})).empty());
  EXPECT_EQ(search.best(), (TokenIds{2, 3}));
}

TEST(BeamSearch, DividesTheScoreByTheLengthIncludingEos) {
  BeamSearch search(2, {0}, 3);
  ASSERT_EQ(search.advance(logprobs({{0.45F, 0.5F, 0.05F}})).size(), 2u);  // eos at once: ln 0.45
  // Then eos: ln(0.5 * 0.5) / 2 is better than ln 0.45, and no running beam is better than either.
  EXPECT_TRUE(search.advance(logprobs({{0.5F, 0.3F, 0.2F}, {0.3F, 0.4F, 0.3F}})).empty());
  EXPECT_EQ(search.best(), (TokenIds{1}));
}

TEST(BeamSearch, ContinuesWhileARunningBeamIsBetterThanTheWorstFinished) {
  BeamSearch search(1, {0}, 3);
  ASSERT_EQ(search.advance(logprobs({{0.4F, 0.6F}})).size(), 1u);  // eos is not among the first `width` tokens
  ASSERT_EQ(search.advance(logprobs({{0.1F, 0.9F}})).size(), 1u);
  EXPECT_TRUE(search.advance(logprobs({{0.2F, 0.8F}})).empty());
  EXPECT_EQ(search.best(), (TokenIds{1, 1, 1}));
}

TEST(BeamSearch, BreaksTiesByTheEarlierBeamAndTheLowerId) {
  BeamSearch search(3, {99}, 4);
  const auto first = search.advance(logprobs({{0.2F, 0.2F, 0.2F, 0.2F, 0.2F}}));
  ASSERT_EQ(first.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(first[i].token, i);
  const std::vector<float> flat(5, 0.2F);
  const auto second = search.advance(logprobs({flat, flat, flat}));
  ASSERT_EQ(second.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(second[i].parent, 0);
    EXPECT_EQ(second[i].token, i);
  }
}

TEST(Generate, EveryEosIdEndsASequence) {
  const auto model = testing::random_model(4);
  const auto full = generate(*model, {}, kPrompts, {.max_new_tokens = 15, .eos = TokenIds{}});
  EXPECT_EQ(full, generate(*model, {}, kPrompts, {.max_new_tokens = 15, .eos = TokenIds{1000}}));
  const TokenIds eos = {full[2][9], full[0][2], full[1][4], full[0][2]};
  const auto ended = generate(*model, {}, kPrompts, {.max_new_tokens = 15, .eos = eos});
  for (size_t i = 0; i < full.size(); ++i)
    EXPECT_EQ(ended[i],
              TokenIds(full[i].begin(), std::find_first_of(full[i].begin(), full[i].end(), eos.begin(), eos.end())));
  const auto unended = generate(*model, {}, kPrompts, {.max_new_tokens = 6, .beams = 3, .eos = TokenIds{}});
  for (const auto& ids : unended) EXPECT_EQ(ids.size(), 6u);
}

TEST(Generate, AStopTokenEndsASequenceLikeEos) {
  const auto model = testing::random_model(4);
  const auto full = generate(*model, {}, kPrompts, {.max_new_tokens = 15, .eos = TokenIds{1000}});
  const int64_t eos = full[2][9], stop = full[0][2];
  for (const int64_t beams : {1, 3}) {
    const auto both = generate(*model, {}, kPrompts,
                               {.max_new_tokens = 15, .beams = beams, .eos = TokenIds{eos}, .stops = {stop, eos}});
    const auto swapped =
        generate(*model, {}, kPrompts, {.max_new_tokens = 15, .beams = beams, .eos = TokenIds{stop}, .stops = {eos}});
    EXPECT_EQ(both, swapped);
    for (const auto& ids : both)
      EXPECT_EQ(std::count(ids.begin(), ids.end(), stop) + std::count(ids.begin(), ids.end(), eos), 0);
  }
}

TEST(Generate, SampledTokensAreReproducibleAndFollowTheirProbabilities) {
  const auto model = testing::random_model(5);
  const GenerationOptions options{
      .max_new_tokens = 6, .eos = TokenIds{1000}, .sampling = Sampling{.temperature = 1.5, .seed = 7}};
  EXPECT_EQ(generate(*model, {}, kPrompts, options), generate(*model, {}, kPrompts, options));
  auto nearly_greedy = options;
  nearly_greedy.sampling->top_k = 1;
  EXPECT_EQ(generate(*model, {}, kPrompts, nearly_greedy),
            generate(*model, {}, kPrompts, {.max_new_tokens = 6, .eos = TokenIds{1000}}));
  auto beams = options;
  beams.beams = 2;
  EXPECT_THROW(generate(*model, {}, kPrompts, beams), Error);
}

TEST(TokenSampling, KeepsTheLikeliestTokensWithProbabilityTopP) {
  const auto logits_NV = at::log(at::tensor({0.5F, 0.25F, 0.125F, 0.125F, 0.1F, 0.2F, 0.3F, 0.4F}).view({2, 4}));
  const auto kept = [&](const Sampling& sampling) { return kept_probabilities(logits_NV, sampling); };
  const auto near = [](const at::Tensor& x, std::vector<float> wanted) {
    return at::allclose(x, at::tensor(wanted).view({2, 4}));
  };
  EXPECT_TRUE(near(kept({}), {0.5F, 0.25F, 0.125F, 0.125F, 0.1F, 0.2F, 0.3F, 0.4F}));
  EXPECT_TRUE(near(kept({.top_p = 0.68}), {2.F / 3, 1.F / 3, 0, 0, 0, 0, 3.F / 7, 4.F / 7}));
  EXPECT_TRUE(near(kept({.top_k = 1}), {1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_TRUE(near(kept({.top_p = 1e-9}), {1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_TRUE(near(kept({.temperature = 0.5, .top_k = 2}), {0.8F, 0.2F, 0, 0, 0, 0, 0.36F, 0.64F}));
}

TEST(TokenSampling, ATinyTemperatureKeepsTheLikeliestTokensAlone) {
  const auto logits_NV = at::tensor({1.0F, 10.0F, -3.0F, 9.5F, 0.0F, -7.0F, 2.0F, 2.0F}).view({2, 4});
  const auto likeliest_NV = at::tensor({0.0F, 1.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.5F, 0.5F}).view({2, 4});
  for (const double temperature : {1e-6, 1e-38, 1e-60, 1e-300})
    for (const Sampling& sampling :
         {Sampling{.temperature = temperature}, Sampling{.temperature = temperature, .top_k = 3, .top_p = 0.9}}) {
      const auto kept_NV = kept_probabilities(logits_NV, sampling);
      EXPECT_TRUE(at::equal(kept_NV, likeliest_NV)) << temperature << ": " << kept_NV;
      EXPECT_EQ(drawn_token(kept_NV[0], 0.99), 1) << temperature;
    }
}

TEST(TokenSampling, TokensAreSampledByProbability) {
  const auto probabilities_V = at::tensor({0.0F, 0.25F, 0.0F, 0.75F, 0.0F});
  EXPECT_EQ(drawn_token(probabilities_V, 0.0), 1);
  EXPECT_EQ(drawn_token(probabilities_V, 0.2499), 1);
  EXPECT_EQ(drawn_token(probabilities_V, 0.25), 3);
  EXPECT_EQ(drawn_token(probabilities_V, 0.9999999), 3);
}

TEST(Score, ReturnsWhichTokensWereTheLikeliest) {
  const auto model = testing::random_model(6);
  const auto answer =
      generate(*model, {}, std::vector<TokenIds>{kPrompts[0]}, {.max_new_tokens = 3, .eos = TokenIds{1000}}).at(0);
  const std::vector<TokenIds> text{joined(kPrompts[0], answer)};
  score_texts(*model, {}, text, {.greedy = true}, [&](size_t, const TextScore& score) {
    ASSERT_EQ(score.greedy.size(), score.token_logprobs.size());
    EXPECT_EQ(std::vector<bool>(score.greedy.end() - 3, score.greedy.end()), std::vector<bool>(3, true));
    EXPECT_FALSE(score.logits.defined());
  });
}

}  // namespace
}  // namespace evenkeel::scoring
