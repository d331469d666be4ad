import{a as i,b as m}from"./chunk-JPKWMRZ3.js";import{B as t}from"./chunk-SBLN7WZB.js";function o({iso:e}){return t("time",{dateTime:e,title:m(e),children:i(e)})}export{o as a};
