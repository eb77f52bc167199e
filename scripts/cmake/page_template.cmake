# Makes page_template.hpp out of FOLDER (stats/formats/page): the page as one text, whose style and scripts stand in it.
# Run by `cmake -DFOLDER=... -DOUTPUT=... -P`. The page lets nothing run but what is hashed here.
set(scripts words data paint timeline flame table verdict pools copies changes main)

# The hash of a text as a source of a Content-Security-Policy: 'sha256-' and base64.
function(policy_source text result)
  string(SHA256 hex "${text}")
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(APPEND hex "0000")  # 33 bytes: whole groups
  set(base64 "")
  foreach(group RANGE 10)
    math(EXPR at "${group} * 6")
    string(SUBSTRING "${hex}" ${at} 6 bytes)
    foreach(shift 18 12 6 0)
      math(EXPR digit "(0x${bytes} >> ${shift}) & 63")
      string(SUBSTRING "${digits}" ${digit} 1 character)
      string(APPEND base64 "${character}")
    endforeach()
  endforeach()
  string(SUBSTRING "${base64}" 0 43 base64)
  set(${result} "'sha256-${base64}='" PARENT_SCOPE)
endfunction()

file(READ "${FOLDER}/page.html" page)
file(READ "${FOLDER}/page.css" style)
set(script "'use strict';\n")
foreach(name ${scripts})
  file(READ "${FOLDER}/${name}.js" part)
  string(APPEND script "${part}")
endforeach()
policy_source("${style}" style_source)
policy_source("${script}" script_source)
foreach(mark style_source script_source style script)
  string(TOUPPER "@${mark}@" place)
  string(REPLACE "${place}" "${${mark}}" page "${page}")
endforeach()
file(WRITE "${OUTPUT}" "// Made by scripts/cmake/page_template.cmake. @TITLE@ and @DATA@ are still to be filled in.
#pragma once
constexpr char kPageTemplate[] = R\"cistern_page(${page})cistern_page\";
")
