# Writes OUTPUT, which defines evenkeel::apps::built_revision(), and leaves the file as it is if the commit is the same.
# Usage: cmake -D SOURCE=... -D OUTPUT=... -P Revision.cmake, at every build.
execute_process(COMMAND git -C "${SOURCE}" rev-parse HEAD OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git -C "${SOURCE}" --no-optional-locks status --porcelain --untracked-files=no
  OUTPUT_VARIABLE changes ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(commit AND changes)
  string(APPEND commit "-dirty")
endif()
set(code "#include \"apps/built_revision.h\"\n\nnamespace evenkeel::apps {\nstd::string_view built_revision() { return \"${commit}\"; }\n}  // namespace evenkeel::apps\n")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT code STREQUAL before)
  file(WRITE "${OUTPUT}" "${code}")
endif()
